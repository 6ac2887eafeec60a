"""`GetReplicaListByRegex` in steps: a pattern over a million keys is no pause, and its answer has a bound.

What was found is written down at once, as it was then: its lease is extended, so what is told stays readable whatever
becomes of the object before the answer leaves. The answer shows everything that was decided up to the last step.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from leasehold.base.codes import Code
from leasehold.base.limits import range_step_hits, range_step_objects, regex_answer_bytes_max, regex_results_max
from leasehold.index.index import Index
from leasehold.index.model import Object
from leasehold.index.patterns import BadPattern, Pattern, accept_pattern, work_of
from leasehold.index.tables import TABLES, Tables
from leasehold.node.service.descriptors import DescriptorWriter, message_of, readable
from leasehold.node.service.leaving import Leaving, go_on_later, wait_for_owner
from leasehold.wire import messages as m
from leasehold.wire.body import head, pack
from leasehold.wire.compiler import argument_reader
from leasehold.wire.connection import Connection, Handler
from leasehold.wire.frame import response
from leasehold.wire.schema import Expected, Failed, Map, Record, Type, Vector, counted
from leasehold.wire.tables.release import Function, Release

_WIDE: Final = 4  # bytes in a length of a long answer: what is written in steps cannot be widened afterwards
_SHORT: Final = 200  # so many results are packed as narrow as they can be, in one go


class Listing:
    """The handler."""

    def __init__(self, index: Index, leaving: Leaving, release: Release) -> None:
        self._index = index
        self._leaving = leaving
        self._release = release

    def by_regex(self, function: Function) -> Handler:
        """Arguments: pattern, tenant."""
        assert function.request is not None
        read = argument_reader(function.request)
        writer = DescriptorWriter(self._release.name, replica_of(function.returns))

        def handle(connection: Connection, seq: int, body: bytes, until_s: float = 0.0) -> bytes | None:
            pattern, tenant = read(body)
            try:
                found = Found(self._index, tenant, accept_pattern(pattern), writer)
            except BadPattern:
                return self._refused(seq, function, "bad pattern")
            again = partial(handle, connection, seq, body)
            return self._go_on(
                connection, seq, function, found, partial(wait_for_owner, connection, seq, again, until_s, len(body))
            )

        return handle

    def _go_on(
        self, connection: Connection, seq: int, function: Function, found: Found, wait: partial[None]
    ) -> bytes | None:
        """One step; the answer if it was the last, else None and more of it later."""
        more = found.step(self._leaving.gate.now_ms)
        if found.unproven:
            wait()
            return None
        if found.too_many:
            return self._refused(seq, function, "too many results")
        if more:
            again = partial(self._go_on, connection, seq, function, found, wait)
            go_on_later(connection, seq, again, found.kept_bytes)
            return None
        frame = response(seq, found.body(function.returns))
        return self._leaving.send(connection, seq, frame, self._index.log.last_n)

    def _refused(self, seq: int, function: Function, reason: str) -> bytes:
        self._index.log.refuse(reason)
        return response(seq, pack(function.returns, Failed(Code.BAD_PARAMS), literal=False))


class Found:
    """What has been found so far."""

    def __init__(self, index: Index, tenant: bytes, pattern: Pattern, writer: DescriptorWriter) -> None:
        self._index = index
        self._tenant = tenant
        self._pattern = pattern
        self._writer = writer
        self._table = 0
        self._matched: list[bytes] = []  # keys that matched and were not looked up yet
        self._short: dict[bytes, list[m.ReplicaDescriptor]] = {}
        self._written = bytearray()
        self._count = 0
        self.unproven = False

    @property
    def too_many(self) -> bool:
        return self._count > regex_results_max or len(self._written) > regex_answer_bytes_max

    @property
    def kept_bytes(self) -> int:
        """What it keeps between two steps."""
        return len(self._written)

    def step(self, now_ms: int) -> bool:
        """Look through some tables, or go on with what matched in them; whether there is more."""
        index, tables = self._index, self._index.catalog.tables.get(self._tenant)
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
        for table in tables[self._table :]:
            self._table += 1
            if table:
                self._matched += filter(self._pattern.search, table)
                looked_at += work_of(self._pattern, table)
                if looked_at >= range_step_objects or len(self._matched) >= range_step_hits:
                    return

    def _add(self, entry: Object) -> None:
        if self._index.owners.unproven and self._index.owners.must_wait(entry):
            self.unproven = True  # H9: nobody is sent to memory whose owner has not been heard of
        replicas = readable(entry)
        if not replicas:
            return
        self._count += 1
        if self._count <= _SHORT:
            self._short[entry.key] = [message_of(replica, entry.size) for replica in replicas]
        self._written += counted(len(entry.key), _WIDE) + entry.key + self._writer.vector(replicas, entry.size, _WIDE)

    def body(self, returns: Type) -> bytes:
        """The body of the answer."""
        if self._count <= _SHORT:
            return pack(returns, self._short, literal=False)
        return head(returns, _WIDE, literal=False) + b"\x01" + counted(self._count, _WIDE) + self._written


def replica_of(returns: Type) -> Record:
    """What the answer has one of for each place of an object."""
    assert isinstance(returns, Expected)
    assert isinstance(returns.inner, Map)
    replicas = returns.inner.value
    assert isinstance(replicas, Vector)
    assert isinstance(replicas.element, Record)
    return replicas.element
