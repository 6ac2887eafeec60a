"""A handler whose command does not state the kind of its reply: space could leave too early (P3)."""

from __future__ import annotations

from leasehold.ha.serving import Serving
from leasehold.index.index import Index
from leasehold.wire.answers import Answer
from leasehold.wire.connection import Connection, Handler
from leasehold.wire.frame import response


def look(index: Index, now_ms: int, key: bytes) -> tuple[bool, int]:
    found = index.reads.exist(now_ms, b"tenant", key)
    return found is not None, index.log.last_n


def handler(serving: Serving) -> Handler:
    def handle(_: Connection, seq: int, body: bytes) -> Answer:
        reply = serving.execute(look, body)
        return serving.answer(reply, response(seq, b"yes" if reply[0] else b"no"))

    return handle
