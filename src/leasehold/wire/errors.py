"""What can go wrong on the wire, hung into the one error tree."""

from __future__ import annotations

from leasehold.base.errors import InvalidArgument, PeerError, Refused, UnknownOutcome


class Malformed(PeerError):
    """Bytes that are no message of ours: too short, a foreign hash, an impossible choice."""


class BadFrame(Malformed):
    """A header that cannot be one: the stream is out of step, and the connection has to go."""


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


CODE_NAMES = {
    -1: "internal error",
    -101: "segment not found",
    -102: "segment exists already",
    -200: "no space",
    -300: "version mismatch",
    -400: "bad key",
    -600: "bad parameters",
    -601: "illegal client",
    -700: "invalid write",
    -703: "replica not ready",
    -704: "object not found",
    -705: "object exists already",
    -706: "object has a lease",
    -707: "lease expired",
    -900: "rpc failed",
    -901: "rpc timed out",
    -1010: "no master elected",
    -1400: "task not found",
}
