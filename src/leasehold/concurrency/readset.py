"""The keys that a transaction has read, and the compares that prove them unchanged. Pure."""

from __future__ import annotations

from leasehold.mvcc.model import Compare, CompareResult, CompareTarget, KeyValue


class ReadSet:
    """Keys and ranges fetched, at the revision of the first fetch, and which keys were used.

    A key that was only prefetched is not compared at the commit. But it fixes the revision for all reads.
    """

    __slots__ = ("_fetched", "_ranges", "_seen", "revision")

    def __init__(self) -> None:
        self.revision = 0  # of the first fetch; 0 before it
        self._fetched: dict[bytes, KeyValue | None] = {}
        self._seen: dict[bytes, KeyValue | None] = {}
        self._ranges: dict[tuple[bytes, bytes], tuple[KeyValue, ...]] = {}

    def has(self, key: bytes) -> bool:
        return key in self._fetched

    def look(self, key: bytes) -> KeyValue | None:
        """The fetched `key`; from now on the transaction depends on it."""
        kv = self._seen[key] = self._fetched[key]
        return kv

    def seen(self) -> list[bytes]:
        return list(self._seen)

    def range(self, start: bytes, end: bytes) -> tuple[KeyValue, ...] | None:
        return self._ranges.get((start, end))

    def add(self, key: bytes, kv: KeyValue | None, revision: int) -> None:
        self.revision = self.revision or revision
        self._fetched.setdefault(key, kv)

    def add_range(self, start: bytes, end: bytes, kvs: tuple[KeyValue, ...], revision: int) -> None:
        self.revision = self.revision or revision
        self._ranges[start, end] = kvs

    def compares(self) -> list[Compare]:
        """True while every key that was read is unchanged.

        A range needs two kinds: "no key in it is newer" detects additions and changes, but not deletions. For those
        every key found is compared, too.
        """
        seen = {key: kv.mod_revision if kv else 0 for key, kv in self._seen.items()}
        for kvs in self._ranges.values():
            for kv in kvs:
                seen.setdefault(kv.key, kv.mod_revision)
        exact = [Compare(key, CompareTarget.MOD, CompareResult.EQUAL, revision) for key, revision in seen.items()]
        return exact + [
            Compare(start, CompareTarget.MOD, CompareResult.LESS, self.revision + 1, range_end=end)
            for start, end in self._ranges
        ]
