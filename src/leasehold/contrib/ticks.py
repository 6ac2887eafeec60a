"""When a fleet last scheduled each of its tasks, kept in the store so that a successor continues from there.

A tick is claimed before its job is sent: one transaction checks that the claimer leads and that no other instance
claimed it meanwhile. So no tick is scheduled twice. A leader that dies between the claim and the sending loses
that tick.
"""

from __future__ import annotations

import time

from msgspec import Struct

from leasehold.base.errors import NotHeld, Unavailable, UnknownOutcome
from leasehold.concurrency import Held
from leasehold.mvcc.model import (
    Compare,
    CompareResult,
    CompareTarget,
    KeyValue,
    Put,
    Range,
    RangeResult,
    prefix_end,
)
from leasehold.sync import SyncCoord

PAUSE_S = 0.1


class Tick(Struct, frozen=True):
    """A claimed tick: its time in seconds since 1970, and the fencing token of the leader that claimed it."""

    at: float
    token: int
    revision: int


class Ticks:
    """The last claimed tick of each task of one fleet."""

    def __init__(self, store: SyncCoord, prefix: bytes) -> None:
        self._store = store
        self._prefix = prefix
        self._seen: dict[str, Tick] = {}

    def load(self) -> dict[str, Tick]:
        """Read the last tick of every task. A new leader does this first."""
        found = self._store.get(self._prefix, prefix_end(self._prefix))
        self._seen = {kv.key[len(self._prefix) :].decode(): _tick(kv) for kv in found.kvs}
        return dict(self._seen)

    def last(self, task: str) -> Tick | None:
        """The last tick of `task` as of `load`, or as claimed by this instance since."""
        return self._seen.get(task)

    def claim(self, held: Held, task: str, at: float) -> bool:
        """Claim the tick of `task` at the time `at`. False if this instance does not lead, or the tick was claimed.

        Waits while the store does not answer, at most as long as the leadership is certain.
        """
        last = self._seen.get(task)
        if last is not None and at <= last.at:
            return False
        key = self._prefix + task.encode()
        mine = f"{at!r} {held.token}".encode()
        unclaimed = Compare(key, CompareTarget.MOD, CompareResult.EQUAL, last.revision if last else 0)
        while True:
            try:
                held.check()
                result = self._store.txn([held.is_owner(), unclaimed], [Put(key, mine)], [Range(key)])
            except NotHeld:
                return False
            except (Unavailable, UnknownOutcome):
                time.sleep(PAUSE_S)
                continue
            break
        if result.succeeded:
            self._seen[task] = Tick(at, held.token, result.header.revision)
            return True
        (found,) = result.results
        assert isinstance(found, RangeResult)  # the answer to the `Range` above
        if found.kvs:
            self._seen[task] = _tick(found.kvs[0])
        # An attempt of unknown outcome may have succeeded: then the value is ours.
        return bool(found.kvs) and found.kvs[0].value == mine

    def forget(self, task: str) -> None:
        """Delete the record of a task that does not exist any more."""
        self._store.delete(self._prefix + task.encode())
        self._seen.pop(task, None)


def _tick(kv: KeyValue) -> Tick:
    at, _, token = kv.value.decode().partition(" ")
    return Tick(float(at), int(token), kv.mod_revision)
