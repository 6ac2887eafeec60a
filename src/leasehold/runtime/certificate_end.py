"""When a server's certificate expires, read by a handshake that verifies nothing: also of an expired certificate."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime
from typing import Final

from leasehold.base.errors import Unavailable

_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0  # the optional first field of a certificate
_UTC_TIME: Final = 0x17  # two digits of the year; from 50 on of the last century
_FORMATS: Final = {_UTC_TIME: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}


async def certificate_end_s(host: str, port: int, timeout_s: float) -> int:
    """Unix time at which the certificate of the server there expires. `Unavailable`: it does not speak TLS."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # no secret is sent, no answer is trusted
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except (OSError, TimeoutError) as error:
        raise Unavailable(f"{host}:{port} did not show a certificate: {error or 'no answer in time'}") from None
    session = writer.get_extra_info("ssl_object")
    raw = session.getpeercert(binary_form=True) if session is not None else None
    writer.transport.abort()
    try:
        return end_of(raw or b"")
    except ValueError as error:
        raise Unavailable(f"{host}:{port}: its certificate cannot be read: {error}") from None


def end_of(der: bytes) -> int:
    """The end of validity in a certificate, as Unix time. Raises `ValueError` for other bytes.

    Python shows the fields of a certificate only after it was verified, so this reads the bytes: a certificate is a
    sequence, its first member too, and that has version, number, algorithm, issuer, and the two times.
    """
    _, certificate, _ = _element(der)
    _, fields, _ = _element(certificate)
    kind, _, rest = _element(fields)
    skipped = 3 if kind == _VERSION else 2
    for _ in range(skipped):
        _, _, rest = _element(rest)
    kind, validity, _ = _element(rest)
    if kind != _SEQUENCE:
        raise ValueError("the times of validity are missing")
    _, _, after = _element(validity)
    kind, text, _ = _element(after)
    if kind not in _FORMATS:
        raise ValueError("the end of validity is not a time")
    end = datetime.strptime(text.decode("ascii"), _FORMATS[kind])
    if kind == _UTC_TIME and end.year >= 2050:  # Python's own limit between the centuries is 69
        end = end.replace(year=end.year - 100)
    return int(end.replace(tzinfo=UTC).timestamp())


def _element(data: bytes) -> tuple[int, bytes, bytes]:
    """The first element of DER bytes: its tag, its content, and the bytes after it."""
    if len(data) < 2:
        raise ValueError("it ends too early")
    length, start = data[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(data[2:start], "big")
    if len(data) < start + length:
        raise ValueError("it ends too early")
    return data[0], data[start : start + length], data[start + length :]
