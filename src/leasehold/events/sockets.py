"""ZeroMQ sockets for both sides, with CURVE where keys are configured. `pyzmq` is in the extra `leasehold[events]`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from leasehold.base.errors import SettingError

SEND_MESSAGES_MAX = 1_000  # for each subscriber; a slower one misses messages, and requests them again


def import_zmq() -> Any:
    """The module `zmq.asyncio`'s parent. Raises `SettingError` if it is not installed."""
    try:
        import zmq.asyncio
        import zmq.auth.asyncio
    except ImportError:
        raise SettingError("events need the package pyzmq; type: pip install 'leasehold[events]'") from None
    return zmq


def read_key(path: str) -> bytes:
    """The secret key (40 characters, Z85) in a file: its last line, or the `secret-key` line of a certificate file."""
    try:
        lines = Path(path).read_text().split("\n")
    except OSError as error:
        raise SettingError(f"events_curve_key = {path!r} cannot be read: {error.strerror}") from None
    for line in reversed([line.strip() for line in lines if line.strip()]):
        key = line.removeprefix("secret-key").lstrip(" =").strip('"')
        if len(key) == 40:
            return key.encode()
    raise SettingError(f"events_curve_key = {path!r} has no secret key of 40 characters")


def secure_server(zmq: Any, sock: Any, secret: bytes) -> None:
    """Make a socket accept only connections that know its public key."""
    sock.curve_secretkey = secret
    sock.curve_publickey = zmq.curve_public(secret)
    sock.curve_server = True


def secure_client(zmq: Any, sock: Any, server: bytes, secret: bytes) -> None:
    """Make a socket talk only to the owner of this public key."""
    sock.curve_secretkey = secret
    sock.curve_publickey = zmq.curve_public(secret)
    sock.curve_serverkey = server
