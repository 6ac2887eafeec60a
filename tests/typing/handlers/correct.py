"""A handler as it should be: through the entry point, with a typed reply, through the outbox."""

from __future__ import annotations

from leasehold.ha.serving import Serving
from leasehold.index.index import Index
from leasehold.index.replies import View
from leasehold.wire.answers import Answer
from leasehold.wire.connection import Connection, Handler
from leasehold.wire.frame import response


def look(index: Index, now_ms: int, key: bytes) -> View[bool]:
    found = index.reads.exist(now_ms, b"tenant", key)
    return View(found is not None, index.log.last_n)


def handler(serving: Serving) -> Handler:
    def handle(_: Connection, seq: int, body: bytes) -> Answer:
        reply = serving.execute(look, body)
        return serving.answer(reply, response(seq, b"yes" if reply.value else b"no"))

    return handle
