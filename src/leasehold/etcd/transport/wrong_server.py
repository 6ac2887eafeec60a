"""What is said of a port that is not what it should be: one wording, for a call that fails there and whoever looks."""

from __future__ import annotations

import socket
import ssl

from leasehold.etcd.transport.failures import RpcFailed

NOTHING_LISTENS = "nothing listens there"
HUNG_UP = "it hung up without a word"
NOT_CONNECTED_IN_TIME = "no connection in time: the host is down, or a firewall drops it"
SAYS_NOTHING = "it takes connections and says nothing: frozen, or no etcd"
WANTS_TLS = "it wants TLS: write etcds:// for it"
NO_TLS = "it does not speak TLS: write etcd:// for it"
NO_ETCD = "what listens there is no etcd"
WANTS_CERTIFICATE = "it wants a certificate of the client: give it cert and key"
BAD_CERTIFICATE = "it wants a certificate of the client, or another one: look at cert and key"
_OLD_TLS = "it speaks no TLS of 1.2 or later"
# What OpenSSL calls it, and what there is to be done.
_TLS_REASONS = {
    "WRONG_VERSION_NUMBER": NO_TLS,
    "RECORD_LAYER_FAILURE": NO_TLS,
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": WANTS_CERTIFICATE,
    "SSLV3_ALERT_BAD_CERTIFICATE": BAD_CERTIFICATE,
    "TLSV1_ALERT_UNKNOWN_CA": "the client's certificate is of an authority that it does not trust: look at cert",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client's certificate has expired: renew cert",
    "TLSV1_ALERT_NO_APPLICATION_PROTOCOL": "it speaks TLS, but not HTTP/2 (ALPN h2): it is no etcd",
    "TLSV1_ALERT_PROTOCOL_VERSION": _OLD_TLS,
    "UNSUPPORTED_PROTOCOL": _OLD_TLS,
}
_TLS_ALERT, _HTTP_1 = b"\x15\x03", (b"HTTP/1", b"<")


def stranger(first_words: bytes) -> str:
    """What somebody is who does not begin as HTTP/2 does; "" if that is not known."""
    if first_words.startswith(_TLS_ALERT):
        return WANTS_TLS
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
        return NOTHING_LISTENS
    if isinstance(error, ConnectionResetError):
        return HUNG_UP
    if isinstance(error, socket.gaierror):
        known = error.errno == socket.EAI_NONAME
        return "no such host" if known else f"its name cannot be looked up: {error.strerror}"
    if isinstance(error, TimeoutError):
        return "it takes no connection in time, or says nothing: frozen, or behind a firewall"
    return str(error) or type(error).__name__
