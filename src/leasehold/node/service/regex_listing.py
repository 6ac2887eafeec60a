"""`GetReplicaListByRegex` in steps: a pattern over a million keys causes no pause, and its answer is bounded.

Each object is encoded when it is found. Its lease is extended then, so its memory stays readable even if the object is
removed before the answer is sent. The answer shows everything that was decided up to the last step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from leasehold.base.codes import Code
from leasehold.base.limits import range_step_hits, range_step_objects, regex_answer_bytes_max, regex_results_max
from leasehold.base.measures import Calls
from leasehold.ha.serving import Serving
from leasehold.index.index import Index
from leasehold.index.model import Object
from leasehold.index.patterns import BadPattern, Pattern, accept_pattern, work_of
from leasehold.index.replies import NOTHING_SHOWN, View
from leasehold.index.tables import NO_TABLES, TABLES, Tables
from leasehold.node.service.descriptors import DescriptorWriter, disk_message_of, message_of, readable
from leasehold.node.service.owner_wait import wait_for_owner
from leasehold.wire import messages as m
from leasehold.wire.answers import Answer, Later
from leasehold.wire.body import head, pack
from leasehold.wire.connection import Connection, Handler
from leasehold.wire.frame import response
from leasehold.wire.schema import Expected, Failed, Map, Record, Type, Vector, counted
from leasehold.wire.tables.release import Function, Release

_WIDE: Final = 4  # bytes in a length of a long answer, which is written in steps and cannot be widened afterwards
_SHORT: Final = 200  # up to this many results are packed together, with the narrowest lengths


class RegexListing:
    """The handler."""

    def __init__(self, serving: Serving, release: Release, calls: Calls) -> None:
        self._serving = serving
        self._calls = calls
        self._release = release

    def by_regex(self, function: Function) -> Handler:
        """Arguments: pattern, tenant."""
        read, serving = function.reader(), self._serving
        writer = DescriptorWriter(self._release.name, replica_of(function.returns))

        def handle(connection: Connection, seq: int, body: bytes, until_ms: int = 0) -> Answer:
            pattern, tenant = read(body)
            try:
                found = Found(serving.index, tenant, accept_pattern(pattern), writer)
            except BadPattern:
                return self._refused(seq, function, "bad pattern")
            again = partial(handle, connection, seq, body)
            return self._step(seq, function, found, partial(wait_for_owner, serving, seq, again, until_ms, len(body)))

        return handle

    def _step(self, seq: int, function: Function, found: Found, wait: Callable[[], Later]) -> Answer:
        """One step; the answer if it was the last, else the next step later."""
        reply = self._serving.execute(_look_up, found)
        if found.unproven:
            return wait()
        if found.too_many:
            return self._refused(seq, function, "too many results")
        if reply.value:
            return Later(partial(self._step, seq, function, found, wait), found.kept_bytes)
        return self._serving.answer(reply, response(seq, found.body(function.returns)))

    def _refused(self, seq: int, function: Function, reason: str) -> Answer:
        self._serving.index.log.refuse(reason)
        self._calls.failed(function.id, Code.BAD_PARAMS.name)
        frame = response(seq, pack(function.returns, Failed(Code.BAD_PARAMS), literal=False))
        return self._serving.answer(NOTHING_SHOWN, frame)


def _look_up(index: Index, now_ms: int, found: Found) -> View[bool]:
    """One step of a listing. True if there is more."""
    return View(found.step(now_ms), index.log.last_n)


class Found:
    """The objects found so far."""

    def __init__(self, index: Index, tenant: bytes, pattern: Pattern, writer: DescriptorWriter) -> None:
        self._index = index
        self._tenant = tenant
        self._pattern = pattern
        self._writer = writer
        self._table = 0
        self._matched: list[bytes] = []  # keys that matched and are not looked up yet
        self._short: dict[bytes, list[m.ReplicaDescriptor]] = {}
        self._written = bytearray()
        self._count = 0
        self.unproven = False

    @property
    def too_many(self) -> bool:
        return self._count > regex_results_max or len(self._written) > regex_answer_bytes_max

    @property
    def kept_bytes(self) -> int:
        """Bytes kept between two steps."""
        return len(self._written)

    def step(self, now_ms: int) -> bool:
        """Search some tables, or look up keys that matched in them. True if there is more."""
        index, tables = self._index, self._index.catalog.tables.get(self._tenant)
        if tables is None and index.disk.count:
            tables = NO_TABLES
        if not self._matched and tables is not None:
            self._match(tables)
        for key in self._matched[:range_step_hits]:
            entry = index.reads.get(now_ms, self._tenant, key)
            if entry is not None:
                self._add(entry)
        del self._matched[:range_step_hits]
        if self.unproven or self.too_many:
            return False
        return bool(self._matched) or (tables is not None and self._table < TABLES)

    def _match(self, tables: Tables) -> None:
        looked_at = 0
        shelves = self._index.disk.shelves
        for table in tables[self._table :]:
            shelf = shelves.get(self._table, ())
            self._table += 1
            if table or shelf:
                keys = [*table, *(key for tenant, key in shelf if tenant == self._tenant and key not in table)]
                self._matched += filter(self._pattern.search, keys)
                looked_at += work_of(self._pattern, keys)
                if looked_at >= range_step_objects or len(self._matched) >= range_step_hits:
                    return

    def _add(self, entry: Object) -> None:
        if self._index.owners.unproven and self._index.owners.must_wait(entry):
            self.unproven = True  # H9: no reader is sent to memory whose owner has not pinged yet
        replicas, disks = readable(entry), self._index.disk.beside(entry) if self._index.disk.count else ()
        if not replicas and not disks:
            return
        self._count += 1
        if self._count <= _SHORT:
            self._short[entry.key] = [
                *(message_of(replica, entry.size) for replica in replicas),
                *(disk_message_of(each, entry.size) for each in disks),
            ]
        described = self._writer.with_disks(replicas, disks, entry.size, _WIDE)
        self._written += counted(len(entry.key), _WIDE) + entry.key + described

    def body(self, returns: Type) -> bytes:
        """The body of the answer."""
        if self._count <= _SHORT:
            return pack(returns, self._short, literal=False)
        return head(returns, _WIDE, literal=False) + b"\x01" + counted(self._count, _WIDE) + self._written


def replica_of(returns: Type) -> Record:
    """The type of one replica in the answer."""
    assert isinstance(returns, Expected)
    assert isinstance(returns.inner, Map)
    replicas = returns.inner.value
    assert isinstance(replicas, Vector)
    assert isinstance(replicas.element, Record)
    return replicas.element
