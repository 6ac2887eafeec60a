"""The requests of a client that are not yet answered: reads and writes. Pure.

A request is *void* when its answer may be returned to its callers but must not be kept: a callback or an own write of
the same key has overtaken it.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from leasehold.base.invariants import ensure
from leasehold.cache.client_events import Put
from leasehold.cache.entries import Entry


class Caller(Struct, frozen=True, gc=False):
    """A call that waits for a key, and its deadline."""

    call: int
    deadline_ms: int


class ReadAttempt:
    """One key requested once: the callers from before it was sent, and those that joined later."""

    __slots__ = ("callers", "key", "late_callers", "sent_ms", "seq", "void")

    def __init__(self, key: bytes, callers: list[Caller]) -> None:
        self.key = key
        self.callers = callers
        self.late_callers: list[Caller] = []
        self.seq = 0
        self.sent_ms = 0
        self.void = False

    def send(self, now_ms: int, seq: int, *, void: bool) -> None:
        self.seq, self.sent_ms, self.void = seq, now_ms, void

    def join(self, caller: Caller) -> None:
        self.late_callers.append(caller)

    def add_callers(self, callers: list[Caller]) -> None:
        self.callers.extend(callers)

    def all_callers(self) -> list[Caller]:
        return self.callers + self.late_callers

    def invalidate(self) -> None:
        self.void = True


class ReadsInFlight:
    """Every read in flight, by request (the oldest first) and by key; both tables are open to readers.

    Invariants: both tables hold the same attempts; an attempt that may be joined is in flight.
    """

    __slots__ = ("_joinable", "by_key", "by_request")

    def __init__(self) -> None:
        self.by_request: dict[tuple[int, bytes], ReadAttempt] = {}
        self.by_key: dict[bytes, list[ReadAttempt]] = {}
        self._joinable: dict[bytes, ReadAttempt] = {}

    def all(self) -> list[ReadAttempt]:
        return list(self.by_request.values())

    def oldest_sent_ms(self) -> int:
        return next(iter(self.by_request.values())).sent_ms

    def joinable(self, key: bytes) -> ReadAttempt | None:
        """The attempt that a new caller for `key` joins."""
        return self._joinable.get(key)

    def add(self, attempt: ReadAttempt) -> None:
        self.by_request[attempt.seq, attempt.key] = attempt
        self.by_key.setdefault(attempt.key, []).append(attempt)
        self._joinable[attempt.key] = attempt

    def remove(self, seq: int, key: bytes) -> ReadAttempt | None:
        """The attempt was answered or is given up; None if it had been given up before."""
        attempt = self.by_request.pop((seq, key), None)
        if attempt is None:
            return None
        same_key = self.by_key[key]
        same_key.remove(attempt)
        if not same_key:
            del self.by_key[key]
        if self._joinable.get(key) is attempt:
            del self._joinable[key]
        return attempt

    def void(self, key: bytes) -> None:
        """No answer that is on its way for `key` may be kept, and no caller may join it."""
        if key in self.by_key:
            for attempt in self.by_key[key]:
                attempt.invalidate()
            self._joinable.pop(key, None)

    def void_all(self) -> None:
        for attempt in self.by_request.values():
            attempt.invalidate()
        self._joinable.clear()

    def check(self) -> None:
        by_key = {(attempt.seq, key) for key, attempts in self.by_key.items() for attempt in attempts}
        ensure(by_key == set(self.by_request), "reads in flight disagree", by_key ^ set(self.by_request))
        for key, attempt in self._joinable.items():
            ensure((attempt.seq, key) in self.by_request, "a caller would join a read that is not in flight", key)


def merged(attempts: Iterable[ReadAttempt]) -> list[ReadAttempt]:
    """One attempt per key, with the callers of all."""
    by_key: dict[bytes, ReadAttempt] = {}
    for attempt in attempts:
        if attempt.key in by_key:
            by_key[attempt.key].add_callers(attempt.callers)
        else:
            by_key[attempt.key] = attempt
    return list(by_key.values())


class WriteAttempt:
    """A write in flight; `void`: the value it wrote must not be kept.

    Its time runs out at the authority first, which counts from when the write arrives and answers that nothing was
    done. That answer is worth waiting `patience_ms` for: without it the outcome is unknown.
    """

    __slots__ = ("call", "deadline_ms", "key", "sent_ms", "unused", "value", "void")

    def __init__(self, put: Put, sent_ms: int, patience_ms: int, void: bool, copy: Entry | None) -> None:
        self.key = put.key
        self.value = put.value
        self.call = put.call
        self.sent_ms = sent_ms
        self.deadline_ms = sent_ms + put.timeout_ms + patience_ms
        self.void = void
        self.unused = copy.unused_with_this() if copy is not None else 0

    def invalidate(self) -> None:
        self.void = True


class WritesInFlight:
    """Every write in flight, by request, and how many there are for each key; both tables are open to readers.

    Invariants: the counts equal the writes; of the writes of one key at most the first sent is not void.
    """

    __slots__ = ("by_request", "count_by_key")

    def __init__(self) -> None:
        self.by_request: dict[int, WriteAttempt] = {}
        self.count_by_key: dict[bytes, int] = {}

    def requests(self) -> list[int]:
        return list(self.by_request)

    def deadlines_ms(self) -> list[int]:
        return [write.deadline_ms for write in self.by_request.values()]

    def overdue(self, now_ms: int) -> list[int]:
        """The requests whose answer is overdue."""
        return [seq for seq, write in self.by_request.items() if write.deadline_ms <= now_ms]

    def add(self, seq: int, write: WriteAttempt) -> None:
        self.by_request[seq] = write
        self.count_by_key[write.key] = self.count_by_key.get(write.key, 0) + 1

    def remove(self, seq: int) -> WriteAttempt | None:
        write = self.by_request.pop(seq, None)
        if write is not None:
            self.count_by_key[write.key] -= 1
            if not self.count_by_key[write.key]:
                del self.count_by_key[write.key]
        return write

    def void(self, key: bytes) -> None:
        """The lease that comes with the outcome of a write of `key` must not be used."""
        if key in self.count_by_key:
            for write in self.by_request.values():
                if write.key == key:
                    write.invalidate()

    def void_all(self) -> None:
        for write in self.by_request.values():
            write.invalidate()

    def check(self) -> None:
        keys = [write.key for write in self.by_request.values()]
        ensure(
            self.count_by_key == {key: keys.count(key) for key in keys},
            "writes in flight are miscounted",
            self.count_by_key,
        )
        kept = [write.key for write in self.by_request.values() if not write.void]
        ensure(len(kept) == len(set(kept)), "two writes of one key may both be kept", kept)
