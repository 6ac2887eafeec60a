"""Find out why a store does not answer, after a call has failed: all endpoints are probed at the same time.

A probe opens a TCP connection and sends the HTTP/2 preface. The answer shows whether the port is closed, silent, or
belongs to another protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl

from leasehold.base.errors import InvalidArgument
from leasehold.base.text import without_password
from leasehold.coord.url import parse_url
from leasehold.etcd.transport.tls import tls_context
from leasehold.etcd.transport.wrong_server import (
    BAD_CERTIFICATE,
    NO_ETCD,
    NOT_CONNECTED_IN_TIME,
    SILENT,
    WANTS_CERTIFICATE,
    WANTS_TLS,
    explained,
    other_protocol,
)

PROBE_TIMEOUT_S = 1.0
# The preface of HTTP/2 and an empty SETTINGS frame: an etcd answers with its own SETTINGS.
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_FRAME_HEADER_BYTES = 9
_FRAME_TYPE_SETTINGS = 4


async def why_silent(url: str) -> str:
    """The result of probing every endpoint of `url`, in a few words each; "" if `url` has no endpoints."""
    try:
        address, options = parse_url(url)
        context = tls_context(options) if address.scheme == "etcds" else None
    except InvalidArgument:
        return ""
    seen = await asyncio.gather(*(_probe(endpoint, context) for endpoint in address.endpoints))
    if len(set(seen)) == 1:
        return seen[0]
    return "; ".join(f"{endpoint}: {what}" for endpoint, what in zip(address.endpoints, seen, strict=True))


async def unreachable(url: str) -> str:
    """The whole sentence for an error message."""
    why = await why_silent(url)
    return f"the store at {without_password(url)} does not answer{f' ({why})' if why else ''}"


async def _probe(endpoint: str, tls: ssl.SSLContext | None) -> str:
    host, _, port_text = endpoint.rpartition(":")
    host, port = host.strip("[]"), int(port_text)
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return NOT_CONNECTED_IN_TIME
    except OSError as error:
        return explained(error)
    try:
        if tls is not None:
            return await _tls_trouble(host, port, tls) or "it uses TLS, but did not answer in time"
        answer = await _greeted(reader, writer)
        if answer == b"" and await _tls_trouble(host, port, _trusting()) in ("", WANTS_CERTIFICATE, BAD_CERTIFICATE):
            return WANTS_TLS
        return _judged(answer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _greeted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes | None:
    """The first bytes of the answer; None if there is none in time, b"" if the connection is closed."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            writer.write(_GREETING)
            return await reader.read(_FRAME_HEADER_BYTES)
    except TimeoutError:
        return None
    except OSError:
        return b""


def _trusting() -> ssl.SSLContext:
    """A context that accepts any certificate: only to find out whether the server speaks TLS."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # no secret is sent, no answer is trusted
    return context


async def _tls_trouble(host: str, port: int, context: ssl.SSLContext) -> str:
    """Why the TLS handshake fails; "" if it succeeds."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port, ssl=context)
    except TimeoutError:
        return SILENT
    except OSError as error:
        return explained(error)
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            # With TLS 1.3 the client finishes its handshake before the server rejects its certificate.
            writer.write(_GREETING)
            await reader.read(_FRAME_HEADER_BYTES)
    except TimeoutError:
        pass  # the handshake succeeded; nothing else is checked here
    except OSError as error:
        return explained(error)
    finally:
        writer.close()
    return ""


def _judged(answer: bytes | None) -> str:
    if answer is None:
        return SILENT
    if len(answer) == _FRAME_HEADER_BYTES and answer[3] == _FRAME_TYPE_SETTINGS:
        return "it speaks gRPC, but did not answer in time"
    return other_protocol(answer) or NO_ETCD
