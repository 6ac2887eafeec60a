"""One write at a time, under the fence, into an empty slot; repeated byte for byte until its outcome is known. Pure.

Explicit and unlogged batches are both written this way. A deposed leader learns here that it was deposed.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from leasehold.base.invariants import ensure
from leasehold.mvcc.model import Compare, CompareResult, CompareTarget, Put, Range, RangeResult, Txn, TxnResult

_NUMBER: Final = b"%020d"
_DIGITS: Final = 20
_CREATE, _EQUAL = CompareTarget.CREATE, CompareResult.EQUAL


def slot_key(prefix: bytes, number: int) -> bytes:
    """The key of batch `number`: 20 digits, so that keys sort as numbers do."""
    return prefix + _NUMBER % number


def slot_number(key: bytes) -> int:
    """The inverse of `slot_key`; 0 for a key that is not a slot, e.g. one written manually. Numbers begin at 1."""
    number = key[key.rfind(b"/") + 1 :]
    return int(number) if len(number) == _DIGITS and number.isdigit() else 0


def fence(leader_key: bytes, epoch: int) -> Compare:
    """True only while `epoch` leads. It compares the create revision: the key of a successor exists too."""
    return Compare(leader_key, CompareTarget.CREATE, CompareResult.EQUAL, epoch)


class Fate(Enum):
    WRITTEN = "written"
    DEPOSED = "deposed"  # the fence does not hold: another epoch leads
    FOREIGN = "foreign"  # the fence holds, but the slot has other bytes: a bug or a manual write, never to be ignored


class FencedWriter:
    """At most one slot in flight. After `WRITTEN`, `sent_ms` is when the committed write was sent, see `judge`."""

    __slots__ = (
        "_attempts",
        "_fence",
        "_first_sent_ms",
        "_key",
        "_last_sent_ms",
        "_read_leader",
        "_txn",
        "_value",
        "epoch",
        "sent_ms",
    )

    def __init__(self, leader_key: bytes, epoch: int) -> None:
        self._fence = fence(leader_key, epoch)
        self._read_leader = Range(leader_key, keys_only=True)
        self.epoch = epoch
        self._txn: Txn | None = None
        self._key = self._value = b""
        self._attempts = 0
        self._first_sent_ms = self._last_sent_ms = 0
        self.sent_ms = 0

    @property
    def undecided(self) -> bool:
        return self._txn is not None

    @property
    def attempts(self) -> int:
        return self._attempts

    def write(self, now_ms: int, key: bytes, value: bytes, lease: int = 0) -> Txn:
        """The transaction that puts `value` into the empty slot `key`."""
        ensure(self._txn is None, "no later batch is sent before the outcome of this one is known", self._key, key)
        self._key, self._value = key, value
        self._attempts = 1
        self._first_sent_ms = self._last_sent_ms = now_ms
        empty = Compare(key, _CREATE, _EQUAL, 0)
        txn = self._txn = Txn((self._fence, empty), (Put(key, value, lease),), (self._read_leader, Range(key)))
        return txn

    def again(self, now_ms: int, lease: int = -1) -> Txn:
        """The same bytes again, because the outcome is unknown. A lost lease may be replaced."""
        ensure(self._txn is not None, "only a batch of unknown outcome is repeated")
        assert self._txn is not None
        self._attempts += 1
        self._last_sent_ms = now_ms
        if lease >= 0:
            put = Put(self._key, self._value, lease=lease)
            self._txn = Txn(self._txn.compare, (put,), self._txn.failure)
        return self._txn

    def judge(self, result: TxnResult) -> Fate:
        """The outcome of the latest attempt. After `WRITTEN` the next slot may be written.

        If the slot already holds these bytes, an earlier attempt wrote them. The leader lease then counts from the
        first attempt, because a successor may have seen it as early as that.
        """
        if result.succeeded:
            self.sent_ms = self._last_sent_ms
            self._txn = None
            return Fate.WRITTEN
        leader, slot = result.results
        assert isinstance(leader, RangeResult)
        assert isinstance(slot, RangeResult)
        if not leader.kvs or leader.kvs[0].create_revision != self.epoch:
            return Fate.DEPOSED
        if slot.kvs and slot.kvs[0].value == self._value:
            self.sent_ms = self._first_sent_ms
            self._txn = None
            return Fate.WRITTEN
        return Fate.FOREIGN
