"""Errors of the wire, subclasses of `LeaseholdError`."""

from __future__ import annotations

from leasehold.base.codes import CODE_NAMES
from leasehold.base.errors import InvalidArgument, PeerError, Refused, Unavailable, UnknownOutcome


class Malformed(PeerError):
    """Bytes that are not a valid message: too short, an unknown hash, an impossible variant."""


class BadFrame(Malformed):
    """An invalid frame header: the stream is out of sync, so the connection must be closed."""


class NoListener(Unavailable):
    """The connection was refused: no server listens at this port, or not yet."""


class NotEncodable(InvalidArgument):
    """A value that does not fit its type on the wire."""


class RpcRefused(Refused):
    """The peer answered with an RPC error (not with a result): `err` is its code, see `frame.Err`."""

    def __init__(self, err: int, message: str) -> None:
        super().__init__(f"rpc error {err}: {message}")
        self.err = err
        self.reason = message


class CallLost(UnknownOutcome):
    """The connection ended, or the deadline passed, after the call was sent: it may have been executed."""


class MasterError(Refused):
    """The master refused a call: `code` is its error code, `name` the code in words."""

    def __init__(self, code: int, call: str) -> None:
        super().__init__(f"{call}: {CODE_NAMES.get(code, 'error')} ({code})")
        self.code = code
        self.name = CODE_NAMES.get(code, "error")
