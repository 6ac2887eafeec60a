"""The cache's two functions in the wire protocol, and how messages are encoded in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from leasehold.base import limits
from leasehold.base.decoding import UNDECODABLE
from leasehold.base.errors import InvalidArgument
from leasehold.cache.model import FromAuthority, FromClient
from leasehold.wire.frame import PUSH, function_id, response
from leasehold.wire.rpc import method


class Parcel(Struct, frozen=True):
    """A list of messages, encoded as msgpack."""

    messages: bytes


TELL: Final = method("leasehold::cache::Tell", Parcel, Parcel)
SAY: Final = function_id("leasehold::cache::Say")
encode = msgspec.msgpack.Encoder().encode
decode_from_authority = msgspec.msgpack.Decoder(list[FromAuthority]).decode
_decode_from_client = msgspec.msgpack.Decoder(list[FromClient]).decode


def packed(messages: Sequence[FromClient] | Sequence[FromAuthority]) -> list[bytes]:
    """Encode the messages into one body, or into several if one would exceed the peer's limit."""
    body = encode(messages)
    if len(body) <= limits.cache_parcel_bytes or len(messages) == 1:
        return [body]
    half = len(messages) // 2
    return [*packed(messages[:half]), *packed(messages[half:])]


def pushed(messages: list[FromAuthority]) -> bytes:
    """The frames that push these messages to a client."""
    return b"".join([response(SAY, body, kind=PUSH) for body in packed(messages)])


def unpacked(packed: bytes) -> list[FromClient]:
    """Decode the messages of a client."""
    try:
        return _decode_from_client(packed)
    except UNDECODABLE as error:
        raise InvalidArgument(f"not messages of the cache: {error}") from None
