"""How a call fails: with a code and a text, and with the knowledge whether the server can have seen it."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

from leasehold.base.errors import PeerError
from leasehold.mvcc.errors import Code

Headers = dict[bytes, bytes]


class RpcFailed(PeerError):
    """A call ended without an answer. `sent` is False only if it is certain that no server has begun with it."""

    def __init__(self, code: Code, message: str, *, sent: bool = True) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message
        self.sent = sent


def status_of(headers: Headers) -> RpcFailed | None:
    """What the last headers of a call say of its end; None if it went well."""
    status = headers.get(b"grpc-status")
    if status == b"0":
        return None
    if status is None:
        http = headers.get(b":status", b"none").decode(errors="replace")
        return RpcFailed(Code.UNAVAILABLE, f"the server does not speak gRPC (HTTP status {http})")
    try:
        code = Code(int(status))
    except ValueError:
        code = Code.UNKNOWN
    return RpcFailed(code, unquote_to_bytes(headers.get(b"grpc-message", b"")).decode(errors="replace"))
