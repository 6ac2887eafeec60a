"""`RemoveAll` and `RemoveByRegex` in steps: a million objects cause no pause, and no step is far ahead of the store."""

from __future__ import annotations

from typing import Final

from leasehold.base.codes import Code
from leasehold.base.measures import Calls
from leasehold.ha.serving import Serving
from leasehold.index.patterns import BadPattern
from leasehold.index.removes import RangeRemoval
from leasehold.index.replies import NOTHING_SHOWN
from leasehold.node.service import commands
from leasehold.wire.answers import Answer, Later
from leasehold.wire.body import pack
from leasehold.wire.connection import Connection, Handler
from leasehold.wire.frame import Err, response
from leasehold.wire.schema import Failed
from leasehold.wire.sending import refusal
from leasehold.wire.tables.release import Function

_AHEAD_RECORDS: Final = 256  # a removal may be this far ahead of the store: a million objects take thousands of steps


class RangeRemoves:
    """The handlers of both functions."""

    def __init__(self, serving: Serving, calls: Calls) -> None:
        self._serving = serving
        self._calls = calls

    def by_regex(self, function: Function) -> Handler:
        """Arguments: pattern, force, tenant. An empty pattern matches everything."""
        read, serving = function.reader(), self._serving

        def refuse(seq: int, code: Code) -> Answer:
            self._calls.failed(function.id, code.name)
            return serving.answer(NOTHING_SHOWN, response(seq, pack(function.returns, Failed(code), literal=False)))

        def handle(_: Connection, seq: int, body: bytes) -> Answer:
            pattern, force, tenant = read(body)
            try:
                removal = serving.index.removes.start_range(tenant, pattern, force)
            except BadPattern:
                serving.index.log.refuse("bad pattern")
                return refuse(seq, Code.BAD_PARAMS)
            if serving.index.log.refuses_records():
                return refuse(seq, Code.NO_SPACE)
            return self._step(seq, removal, function)

        return handle

    def all(self, function: Function) -> Handler:
        """Arguments: force, tenant."""
        read, serving = function.reader(), self._serving

        def handle(_: Connection, seq: int, body: bytes) -> Answer:
            force, tenant = read(body)
            if serving.index.log.refuses_records():  # the answer is a number and cannot express an error
                self._calls.failed(function.id, Code.NO_SPACE.name)
                return refusal(seq, Err.IO, "the journal is full: nothing can be written")
            return self._step(seq, serving.index.removes.start_range(tenant, b"", force), function)

        return handle

    def _step(self, seq: int, removal: RangeRemoval, function: Function) -> Answer:
        """One step; the answer if it was the last, else the next step later."""
        serving = self._serving
        reply = serving.execute(commands.range_removal_step, removal)
        if reply.value:
            return serving.answer(reply, response(seq, pack(function.returns, removal.count, literal=False)))

        def more() -> Answer:
            return self._step(seq, removal, function)

        wait_for_n = reply.after - _AHEAD_RECORDS
        return serving.resume_after(wait_for_n, more) if wait_for_n > serving.outbox.acked_n else Later(more)
