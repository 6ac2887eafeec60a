"""What can go wrong on the wire, hung into the one error tree."""

from __future__ import annotations

from leasehold.base.codes import CODE_NAMES
from leasehold.base.errors import InvalidArgument, PeerError, Refused, Unavailable, UnknownOutcome


class Malformed(PeerError):
    """Bytes that are no message of ours: too short, a foreign hash, an impossible choice."""


class BadFrame(Malformed):
    """A header that cannot be one: the stream is out of step, and the connection has to go."""


class NoListener(Unavailable):
    """The host answers that nothing listens at this port: no server is there, or not yet."""


class NotEncodable(InvalidArgument):
    """A value that does not fit its type on the wire."""


class RpcRefused(Refused):
    """The peer answered with an RPC error (not with a result): `err` is its code, see `frame.Err`."""

    def __init__(self, err: int, message: str) -> None:
        super().__init__(f"rpc error {err}: {message}")
        self.err = err
        self.reason = message


class CallLost(UnknownOutcome):
    """The connection ended, or the deadline passed, after the call was sent: it may have been carried out."""


class MasterError(Refused):
    """The master refused a call on its merits: `code` is its error code, `name` what it means."""

    def __init__(self, code: int, call: str) -> None:
        super().__init__(f"{call}: {CODE_NAMES.get(code, 'error')} ({code})")
        self.code = code
        self.name = CODE_NAMES.get(code, "error")
