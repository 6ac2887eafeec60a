"""TLS of one process: its certificate, and the authority that it trusts. Changed files are used for new connections.

With `ca`, both sides of a connection must have a certificate of that authority (mutual TLS).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any, Final

from leasehold.base.errors import SettingError
from leasehold.base.security import TlsSettings
from leasehold.runtime.reloaded import Reloaded, read_small
from leasehold.runtime.tasks import TaskSet

HANDSHAKE_TIMEOUT_S: Final = 5.0
_COPY_BYTES: Final = 256 * 1024
_STREAM_BYTES: Final = 1 << 20
OnStream = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


class Tls:
    """The contexts for new connections. `peer_name`, if set, is the name that every server's certificate must have."""

    def __init__(self, *, cert: str = "", key: str = "", ca: str = "", peer_name: str = "") -> None:
        if bool(cert) != bool(key):
            raise SettingError("tls_cert and tls_key belong together: give both files, or neither")
        self._cert, self._key, self._ca = cert, key, ca
        self.peer_name = peer_name
        files = [file for file in (cert, key, ca) if file]
        self._server = Reloaded(files, lambda: self._server_context(ssl.CERT_REQUIRED)) if cert else None
        self._open_server = Reloaded(files, lambda: self._server_context(ssl.CERT_OPTIONAL)) if cert else None
        self._client = Reloaded(files, self._client_context)

    @classmethod
    def of(cls, settings: TlsSettings) -> Tls | None:
        """From the settings; None if they have no TLS files."""
        if not (settings.tls_cert or settings.tls_key or settings.tls_ca):
            return None
        return cls(cert=settings.tls_cert, key=settings.tls_key, ca=settings.tls_ca, peer_name=settings.tls_peer_name)

    @property
    def mutual(self) -> bool:
        """Whether servers ask clients for a certificate."""
        return bool(self._ca)

    @property
    def serves(self) -> bool:
        """Whether there is a certificate to serve with."""
        return self._server is not None

    def server(self, *, certificate_optional: bool = False) -> ssl.SSLContext:
        """For one accepted connection. `certificate_optional`: also without a client certificate, never with a bad one.

        The caller then decides what a client without certificate may do.
        """
        context = self._open_server if certificate_optional else self._server
        if context is None:
            raise SettingError("tls_cert is missing: give the certificate to serve with, and its key with tls_key")
        return context.value()

    def client(self) -> ssl.SSLContext:
        """For one connection to a server."""
        return self._client.value()

    def server_name(self, host: str) -> str:
        """The name to look for in the certificate of the server at `host`."""
        return self.peer_name or host

    def _server_context(self, verify: ssl.VerifyMode) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._load(context)
        if self._ca:
            context.verify_mode = verify
        return context

    def _client_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._load(context)
        if not self._ca:
            context.load_default_certs()
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        for setting, file in (("tls_cert", self._cert), ("tls_key", self._key), ("tls_ca", self._ca)):
            if file:
                read_small(file, setting)  # for an error that names the setting
        try:
            if self._ca:
                context.load_verify_locations(self._ca)
        except ssl.SSLError as error:
            raise SettingError(f"tls_ca = '{self._ca}' holds no certificate in PEM ({error.reason})") from None
        try:
            if self._cert:
                context.load_cert_chain(self._cert, self._key)
        except ssl.SSLError as error:
            raise SettingError(
                f"tls_cert = '{self._cert}' and tls_key = '{self._key}' are not a certificate and its key, both in "
                f"PEM ({error.reason})"
            ) from None


def certificate_names(transport: asyncio.BaseTransport | None) -> tuple[str, ...]:
    """The names in the verified certificate of the other side: its common name, then its DNS names."""
    session = transport.get_extra_info("ssl_object") if transport is not None else None
    found = session.getpeercert() if session is not None else None
    if not found:
        return ()
    common = [value for part in found.get("subject", ()) for name, value in part if name == "commonName"]
    return (*common, *(value for kind, value in found.get("subjectAltName", ()) if kind == "DNS"))


async def serve_stream(sock: socket.socket, tls: Tls | None, on_stream: OnStream) -> None:
    """Serve streams on an accepted connection, after the handshake. Raises `OSError` if the handshake fails."""
    loop = asyncio.get_running_loop()
    protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader(limit=_STREAM_BYTES, loop=loop), on_stream, loop=loop)
    if tls is None:
        await loop.connect_accepted_socket(lambda: protocol, sock)
    else:
        await loop.connect_accepted_socket(
            lambda: protocol, sock, ssl=tls.server(), ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S
        )


class TlsRelay:
    """Gives code that works on plain sockets the plain side of TLS connections.

    The wire server and the guardian's forwarder read and write sockets themselves. A relayed connection ends on both
    sides together: TLS has no half-closed state that these could use.
    """

    def __init__(self, tls: Tls) -> None:
        self._tls = tls
        self._tasks = TaskSet()

    async def accepted(self, sock: socket.socket) -> socket.socket:
        """The plain side of an accepted connection. Raises `OSError` if the handshake fails; `sock` is closed then."""
        streams: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = (
            asyncio.get_running_loop().create_future()
        )

        async def made(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            streams.set_result((reader, writer))

        try:
            await serve_stream(sock, self._tls, made)
        except BaseException:
            sock.close()
            raise
        return await self._relayed(*await streams)

    async def connected(self, sock: socket.socket, host: str) -> socket.socket:
        """The plain side of a connection to a server at `host`, after the handshake."""
        reader, writer = await asyncio.open_connection(
            sock=sock,
            ssl=self._tls.client(),
            server_hostname=self._tls.server_name(host),
            ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
            limit=_STREAM_BYTES,
        )
        return await self._relayed(reader, writer)

    async def close(self) -> None:
        await self._tasks.close()

    async def _relayed(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        plain = await asyncio.open_connection(sock=ours, limit=_STREAM_BYTES)
        self._tasks.start(_relay(reader, writer, *plain))
        return theirs


async def _relay(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    plain_reader: asyncio.StreamReader,
    plain_writer: asyncio.StreamWriter,
) -> None:
    """Copy both ways until one side ends; then both end."""
    copies = [asyncio.ensure_future(_copy(reader, plain_writer)), asyncio.ensure_future(_copy(plain_reader, writer))]
    try:
        await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for copy in copies:
            copy.cancel()
        await asyncio.gather(*copies, return_exceptions=True)
        for each in (writer, plain_writer):
            each.close()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(_COPY_BYTES):
            sink.write(data)
            await sink.drain()
