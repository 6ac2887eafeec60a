"""No connection: whatever is wrong with a server's TLS, or with what answers at all, the error says what to do."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.etcd.raw_server import Peer
from tests.etcd.test_transport import ANSWER

import leasehold
from leasehold.base.errors import Unavailable
from leasehold.testing import certificates
from leasehold.testing.certificates import CertificateAuthority
from leasehold.testing.etcd import EtcdCluster

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]
NOT_KNOWN_YET = "no connection: not in time"
Talk = Callable[[Peer], Awaitable[None]]


def context(authority: CertificateAuthority, folder: Path, *, alpn: str = "h2") -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(*authority.server_files(folder))
    made.set_alpn_protocols([alpn])
    return made


async def one_answer(peer: Peer) -> None:
    await peer.greet()
    stream, _ = await peer.request()
    peer.write(peer.answer(stream, ANSWER))
    await peer.closed()


async def http_1(peer: Peer) -> None:
    await peer.reader.readline()
    peer.writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@asynccontextmanager
async def serving(tls: ssl.SSLContext | None, talk: Talk) -> AsyncIterator[int]:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(Peer(reader, writer))
        except (OSError, EOFError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def error_of(url: str, **options: Any) -> str:
    """Why there is no connection; a busy machine gets more time to find it out."""
    error = NOT_KNOWN_YET
    for timeout_s in (0.5, 5, 30):
        if NOT_KNOWN_YET not in error:
            break
        async with await leasehold.connect(url, timeout_s=timeout_s, **options) as client:
            with pytest.raises(Unavailable) as failed:
                await client.put(b"k", b"v")
        error = str(failed.value)
    return error


def on_both_loops(test: Callable[[], Any]) -> None:
    for factory in LOOPS:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(test())


def test_certificates_that_are_not_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, stranger = CertificateAuthority(), CertificateAuthority("another authority")
    good = context(authority, tmp_path / "good")
    monkeypatch.setattr(certificates, "LIFETIME", datetime.timedelta(minutes=-1))
    expired = context(authority, tmp_path / "expired")

    async def run() -> None:
        async with serving(good, one_answer) as port:
            error = await error_of(f"etcds://127.0.0.1:{port}", ca=stranger.ca_pem)
            assert "certificate is not valid" in error
            assert "set ca" in error
            error = await error_of(f"etcds://127.0.0.2:{port}", ca=authority.ca_pem)
            assert "nothing listens there" in error or "127.0.0.2" in error
            error = await error_of(f"etcds://127.0.0.1:{port}")  # of whom the system trusts
            assert "certificate is not valid" in error
        async with serving(expired, one_answer) as port:
            assert "expired" in await error_of(f"etcds://localhost:{port}", ca=authority.ca_pem)

    on_both_loops(run)


def test_a_server_with_another_name(tmp_path: Path) -> None:
    """Its certificate is for 127.0.0.1 and localhost; the client uses another name of the same machine."""
    authority = CertificateAuthority()

    async def run() -> None:
        async with serving(context(authority, tmp_path), one_answer) as port:
            error = await error_of(f"etcds://[::ffff:127.0.0.1]:{port}", ca=authority.ca_pem)
            assert "not valid for" in error
            assert "use the host name in the certificate" in error

    on_both_loops(run)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_a_server_that_wants_a_certificate(tmp_path: Path, version: ssl.TLSVersion) -> None:
    """With a single TLS version; each reports it at a different time."""
    authority = CertificateAuthority()
    certificate, key = authority.client()
    demanding = context(authority, tmp_path)
    demanding.load_verify_locations(cadata=authority.ca_pem.decode())
    demanding.verify_mode = ssl.CERT_REQUIRED
    demanding.minimum_version = demanding.maximum_version = version

    async def run() -> None:
        async with serving(demanding, one_answer) as port:
            url = f"etcds://127.0.0.1:{port}"
            assert "cert and key" in await error_of(url, ca=authority.ca_pem)
            async with await leasehold.connect(url, ca=authority.ca_pem, cert=certificate, key=key) as client:
                assert (await client.get(b"k")).count == 7

    on_both_loops(run)


def test_another_server_answers(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    web = context(authority, tmp_path, alpn="http/1.1")

    async def run() -> None:
        async with serving(web, http_1) as port:
            error = await error_of(f"etcds://127.0.0.1:{port}", ca=authority.ca_pem)
            assert "HTTP/1 server" in error or "not HTTP/2" in error
        async with serving(None, http_1) as port:
            assert "HTTP/1 server" in await error_of(f"etcd://127.0.0.1:{port}")
            assert "write etcd://" in await error_of(f"etcds://127.0.0.1:{port}", ca=authority.ca_pem)
        async with serving(context(authority, tmp_path), one_answer) as port:
            assert "write etcds://" in await error_of(f"etcd://127.0.0.1:{port}")
        assert "nothing listens there" in await error_of(f"etcd://127.0.0.1:{port}")

    on_both_loops(run)


async def test_a_real_etcd_in_the_wrong_way() -> None:
    authority = CertificateAuthority()
    async with EtcdCluster(1, authority=authority, client_certificates=True) as secure, EtcdCluster(1) as plain:
        assert "write etcds://" in await error_of(secure.url.replace("etcds://", "etcd://"))
        assert "cert" in await error_of(secure.url, ca=authority.ca_pem)
        error = await error_of(plain.url.replace("etcd://", "etcds://"), ca=authority.ca_pem)
        assert "write etcd://" in error
