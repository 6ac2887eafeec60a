"""Requests of subscribers and the answers of a publisher, as msgpack maps."""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from msgspec import Struct

from leasehold.base.decoding import UNDECODABLE
from leasehold.events.follower import PageRequest, Request, ResumeRequest
from leasehold.events.stream import Answer, MustReload, Page, Resumed

request_bytes_max = 4_096  # a cursor has the name of a tenant


class NotLeading(Struct, frozen=True, tag="elsewhere"):
    """This node publishes nothing: try another one."""


Answered: TypeAlias = Resumed | MustReload | Page | NotLeading

_requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(ResumeRequest | PageRequest)
_answers: msgspec.msgpack.Decoder[Answered] = msgspec.msgpack.Decoder(Answered)


def encode(message: Request | Answer | NotLeading) -> bytes:
    """A request or an answer as bytes."""
    return msgspec.msgpack.encode(message)


def decode_request(raw: bytes) -> Request | None:
    """A request; None if it is none of ours."""
    try:
        return _requests.decode(raw) if len(raw) <= request_bytes_max else None
    except UNDECODABLE:
        return None


def decode_answer(raw: bytes) -> Answered:
    """An answer. Raises `msgspec.MsgspecError` if it is none."""
    return _answers.decode(raw)
