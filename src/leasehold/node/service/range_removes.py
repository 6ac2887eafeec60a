"""`RemoveAll` and `RemoveByRegex` in steps: a million objects are no pause, and no step is far ahead of the store."""

from __future__ import annotations

from typing import Final

from leasehold.base.codes import Code
from leasehold.index.index import Index
from leasehold.index.patterns import BadPattern
from leasehold.index.removes import RangeRemoval
from leasehold.node.service.leaving import Leaving, go_on_later
from leasehold.wire.body import pack
from leasehold.wire.compiler import argument_reader
from leasehold.wire.connection import Connection, Handler
from leasehold.wire.frame import Err, response
from leasehold.wire.schema import Failed
from leasehold.wire.sending import refusal
from leasehold.wire.tables.release import Function

_AHEAD_RECORDS: Final = 256  # a removal waits for the store no earlier: a million objects are thousands of steps


class Ranges:
    """The handlers of both functions."""

    def __init__(self, index: Index, leaving: Leaving) -> None:
        self._index = index
        self._leaving = leaving

    def by_regex(self, function: Function) -> Handler:
        """Arguments: pattern, force, tenant. An empty pattern matches everything."""
        assert function.request is not None
        read = argument_reader(function.request)

        def handle(connection: Connection, seq: int, body: bytes) -> bytes | None:
            pattern, force, tenant = read(body)
            removal = self._start(tenant, pattern, force)
            if removal is None:
                self._index.log.refuse("bad pattern")
                return response(seq, pack(function.returns, Failed(Code.BAD_PARAMS), literal=False))
            if self._index.log.refuses_records():
                return response(seq, pack(function.returns, Failed(Code.NO_SPACE), literal=False))
            return self._go_on(connection, seq, removal, function)

        return handle

    def all(self, function: Function) -> Handler:
        """Arguments: force, tenant."""
        assert function.request is not None
        read = argument_reader(function.request)

        def handle(connection: Connection, seq: int, body: bytes) -> bytes | None:
            force, tenant = read(body)
            if self._index.log.refuses_records():  # its answer is a number: it has no place for an error of its own
                return refusal(seq, Err.IO, "the journal is full: nothing can be written down")
            return self._go_on(connection, seq, self._index.removes.start_range(tenant, b"", force), function)

        return handle

    def _start(self, tenant: bytes, pattern: bytes, force: bool) -> RangeRemoval | None:
        try:
            return self._index.removes.start_range(tenant, pattern, force)
        except BadPattern:
            return None

    def _go_on(self, connection: Connection, seq: int, removal: RangeRemoval, function: Function) -> bytes | None:
        """One step; the answer if it was the last, else None and more of it later."""
        gate = self._leaving.gate
        if removal.step(gate.now_ms):
            frame = response(seq, pack(function.returns, removal.count, literal=False))
            return self._leaving.send(connection, seq, frame, removal.after)
        self._leaving.tell()

        def more() -> bytes | None:
            return self._go_on(connection, seq, removal, function)

        if removal.after - _AHEAD_RECORDS > gate.acked_n:
            connection.wait_durable(removal.after - _AHEAD_RECORDS, seq, more)
        else:
            go_on_later(connection, seq, more)
        return None
