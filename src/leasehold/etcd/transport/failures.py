"""The failure of a call: a code, a text, and whether the server may have seen the call."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

from leasehold.base.errors import PeerError
from leasehold.mvcc.errors import Code

Headers = dict[bytes, bytes]


class RpcFailed(PeerError):
    """A call failed. `sent` is False only if no server can have begun to process it."""

    def __init__(self, code: Code, message: str, *, sent: bool = True) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message
        self.sent = sent


def status_of(headers: Headers) -> RpcFailed | None:
    """The failure in the last headers of a call; None if it succeeded."""
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
