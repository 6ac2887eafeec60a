"""The records of the journal about one key, and why it is not in the index. Pure."""

from __future__ import annotations

from typing import Final
from zlib import crc32

from leasehold.index.patterns import compile_pattern
from leasehold.index.records import (
    ClientGone,
    CopyEnd,
    CopyStart,
    Extent,
    MountSegment,
    PutEnd,
    PutEnds,
    PutRevoke,
    PutStart,
    Record,
    Remove,
    RemoveRange,
    ReplicaClear,
    UnmountSegment,
)

LINES_MAX: Final = 200
_OF_MANY: Final = (PutEnds, RemoveRange, UnmountSegment, ClientGone, MountSegment)


def may_concern(record: Record, tenant: bytes, key: bytes) -> bool:
    """Whether a record may be about this key: it names it, or it names no key."""
    if isinstance(record, _OF_MANY):
        return True
    return getattr(record, "key", None) == key and getattr(record, "tenant", None) == tenant


class KeyStory:
    """The records about one key, added in their order."""

    def __init__(self, tenant: bytes, key: bytes) -> None:
        self._tenant, self._key = tenant, key
        self._table = crc32(key) & 16383
        self._puts: set[int] = set()
        self._newest = 0  # the put number of the newest version
        self._places: dict[int, set[int]] = {}  # by put number: the mounts of its segments
        self.lines: list[tuple[int, int, str]] = []
        self.ending = ""  # why the newest version is not there; "" if no record ends it

    def add(self, n: int, wall_us: int, record: Record) -> None:
        text = self._text(n, record)
        if text:
            self.lines.append((n, wall_us, text))
            del self.lines[:-LINES_MAX]

    def conclusion(self, *, present: bool, hinted: bool, first_n: int) -> str:
        """Why the key is not in the index, as far as the journal shows."""
        if present:
            return "It is in the index."
        if self.ending:
            return f"It was deleted: {self.ending}"
        if hinted:
            return "Evicted by the primary within the last minute, when its lease had expired."
        if self._newest:
            return "No record removes it, so the primary evicted it, which is not recorded, when its lease had expired."
        return (
            f"The journal does not name it from record {first_n} on: it was never put, or it was removed or evicted "
            "before."
        )

    def _text(self, n: int, record: Record) -> str:
        match record:
            case PutStart():
                self._puts.add(n)
                self._places[n] = _mounts(record.extents)
                self._newest, self.ending = n, "its put was not finished."
                kind = "upsert" if record.upsert else "put"
                return f"{kind} started by client {record.client.hex()}: {record.size} bytes"
            case PutEnd():
                return self._finished(record.put_seq)
            case PutEnds():
                ours = next((each for each in record.put_seqs if each in self._puts), 0)
                return self._finished(ours) if ours else ""
            case PutRevoke():
                return self._ended(record.put_seq, f"its put was given back ({record.cause.name.lower()})")
            case Remove():
                return self._ended(self._newest, f"it was removed ({record.cause.name.lower()})")
            case RemoveRange():
                return self._in_range(record)
            case UnmountSegment(incarnations=mounts):
                return self._lost(set(mounts), f"its segment was unmounted ({record.cause.name.lower()})")
            case ClientGone(incarnations=mounts):
                return self._lost(set(mounts), f"storage client {record.client.hex()} died")
            case MountSegment(supersedes=mounts):
                return self._lost(set(mounts), "its memory was mounted again by another client")
            case CopyStart():
                self._places.setdefault(record.put_seq, set()).update(_mounts(record.extents))
                return "copy started"
            case CopyEnd():
                return "copy finished"
            case ReplicaClear():
                return f"{len(record.replicas)} replicas removed"
            case _:
                return ""

    def _finished(self, put_seq: int) -> str:
        if put_seq >= self._newest:  # the start may be before the records that were read
            self._newest, self.ending = put_seq, ""
        self._puts.add(put_seq)
        return "put finished: readable from now on"

    def _ended(self, put_seq: int, reason: str) -> str:
        if put_seq >= self._newest:
            self.ending = f"{reason}."
        return reason

    def _in_range(self, record: RemoveRange) -> str:
        inside = record.tenant == self._tenant and record.first_table <= self._table <= record.last_table
        if not inside or not self._newest or self._newest in record.stays:
            return ""
        if record.pattern and compile_pattern(record.pattern).search(self._key) is None:
            return ""
        return self._ended(self._newest, f"it was removed with others ({record.cause.name.lower()})")

    def _lost(self, mounts: set[int], reason: str) -> str:
        places = self._places.get(self._newest, set())
        if not places & mounts:
            return ""
        places -= mounts
        return self._ended(self._newest, reason) if not places else f"a replica was lost: {reason}"


def _mounts(extents: tuple[Extent, ...]) -> set[int]:
    return {extent.incarnation for extent in extents}
