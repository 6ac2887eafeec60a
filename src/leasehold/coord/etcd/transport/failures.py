"""How a call fails: with a code and a text, and with the knowledge whether the server can have seen it."""

from __future__ import annotations

import socket
import ssl
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


HUNG_UP = "it hung up without a word"
_TLS_ALERT, _HTTP_1 = b"\x15\x03", b"HTTP/1"
_NO_TLS, _OLD_TLS = "it does not speak TLS: write etcd:// for it", "it speaks no TLS of 1.2 or later"
# What OpenSSL calls it, and what there is to be done.
_TLS_REASONS = {
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "RECORD_LAYER_FAILURE": _NO_TLS,
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it wants a certificate of the client: give it cert and key",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it wants a certificate of the client, or another one: look at cert and key",
    "TLSV1_ALERT_UNKNOWN_CA": "the client's certificate is of an authority that it does not trust: look at cert",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client's certificate has expired: renew cert",
    "TLSV1_ALERT_NO_APPLICATION_PROTOCOL": "it speaks TLS, but not HTTP/2 (ALPN h2): it is no etcd",
    "TLSV1_ALERT_PROTOCOL_VERSION": _OLD_TLS,
    "UNSUPPORTED_PROTOCOL": _OLD_TLS,
}


def stranger(first_words: bytes) -> str:
    """What somebody is who does not begin as HTTP/2 does; "" if that is not known."""
    if first_words.startswith(_TLS_ALERT):
        return "it wants TLS: write etcds:// for it"
    return "an HTTP/1 server answers there, no etcd" if first_words.startswith(_HTTP_1) else ""


def explained(error: BaseException) -> str:
    """Why there is no connection, and what to do about it."""
    if isinstance(error, RpcFailed):
        return error.message
    if isinstance(error, ssl.SSLCertVerificationError):
        todo = "name the authority that signed it with ca, and the server as its certificate does"
        return f"its certificate is not good: {error.verify_message}; {todo}"
    if isinstance(error, ssl.SSLError):
        return _TLS_REASONS.get(error.reason or "", f"TLS failed: {error}")
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    if isinstance(error, ConnectionResetError):
        return HUNG_UP
    if isinstance(error, socket.gaierror):
        return f"no such host: {error.strerror}"
    if isinstance(error, TimeoutError):
        return "it takes no connection in time, or says nothing: frozen, or behind a firewall"
    return str(error) or type(error).__name__
