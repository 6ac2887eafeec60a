"""Messages for a port that is not a reachable etcd, shared by failed calls and by the diagnosis."""

from __future__ import annotations

import socket
import ssl

from leasehold.etcd.transport.failures import RpcFailed

NOTHING_LISTENS = "nothing listens there"
HUNG_UP = "it closed the connection without an answer"
NOT_CONNECTED_IN_TIME = "no connection in time: the host is down, or a firewall drops it"
SILENT = "it accepts connections but does not answer: frozen, or not an etcd"
WANTS_TLS = "it requires TLS: write etcds://"
NO_TLS = "it does not use TLS: write etcd://"
NO_ETCD = "another server listens there, not an etcd"
WANTS_CERTIFICATE = "it requires a client certificate: set cert and key"
BAD_CERTIFICATE = "it requires a client certificate, or a different one: check cert and key"
_OLD_TLS = "it does not support TLS 1.2 or later"
# OpenSSL's reason -> what it means and what to do
_TLS_REASONS = {
    "WRONG_VERSION_NUMBER": NO_TLS,
    "RECORD_LAYER_FAILURE": NO_TLS,
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": WANTS_CERTIFICATE,
    "SSLV3_ALERT_BAD_CERTIFICATE": BAD_CERTIFICATE,
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the authority of the client certificate: check cert",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client certificate has expired: renew cert",
    "TLSV1_ALERT_NO_APPLICATION_PROTOCOL": "it uses TLS, but not HTTP/2 (ALPN h2): not an etcd",
    "TLSV1_ALERT_PROTOCOL_VERSION": _OLD_TLS,
    "UNSUPPORTED_PROTOCOL": _OLD_TLS,
}
_TLS_ALERT, _HTTP_1 = b"\x15\x03", (b"HTTP/1", b"<")


def other_protocol(first_bytes: bytes) -> str:
    """Which server answers with bytes that are not HTTP/2; "" if unknown."""
    if first_bytes.startswith(_TLS_ALERT):
        return WANTS_TLS
    return "an HTTP/1 server answers there, not an etcd" if first_bytes.startswith(_HTTP_1) else ""


def explained(error: BaseException) -> str:
    """Why there is no connection, and what to do."""
    if isinstance(error, RpcFailed):
        return error.message
    if isinstance(error, ssl.SSLCertVerificationError):
        todo = "set ca to the authority that signed it, and use the host name in the certificate"
        return f"its certificate is not valid: {error.verify_message}; {todo}"
    if isinstance(error, ssl.SSLError):
        return _TLS_REASONS.get(error.reason or "", f"TLS failed: {error}")
    if isinstance(error, ConnectionRefusedError):
        return NOTHING_LISTENS
    if isinstance(error, ConnectionResetError):
        return HUNG_UP
    if isinstance(error, socket.gaierror):
        known = error.errno == socket.EAI_NONAME
        return "no such host" if known else f"its name cannot be resolved: {error.strerror}"
    if isinstance(error, TimeoutError):
        return "no connection or no answer in time: frozen, or behind a firewall"
    return str(error) or type(error).__name__
