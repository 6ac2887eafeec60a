"""The metadata server of the transfer engine: a small table that many hosts write to, with bounds."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest

from leasehold.node.service import metadata_server
from leasehold.node.service.metadata_server import MetadataServer


@pytest.fixture
async def url() -> AsyncIterator[str]:
    sock = socket.create_server(("127.0.0.1", 0))
    server = MetadataServer()
    host, port = sock.getsockname()
    await server.start(sock)
    yield f"http://{host}:{port}/metadata"
    await server.close()


async def ask(method: str, url: str, key: str, body: bytes | None = None) -> tuple[int, bytes]:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url, params={"key": key}, data=body) as answer,
    ):
        return answer.status, await answer.read()


async def test_it_stores_and_returns_values(url: str) -> None:
    assert await ask("GET", url, "mooncake/ram/a") == (404, b"metadata not found")
    assert (await ask("PUT", url, "mooncake/ram/a", b"{}"))[0] == 200
    assert await ask("GET", url, "mooncake/ram/a") == (200, b"{}")
    assert (await ask("DELETE", url, "mooncake/ram/a"))[0] == 200
    assert (await ask("DELETE", url, "mooncake/ram/a"))[0] == 404
    assert await ask("GET", url, "") == (400, b"Missing key parameter")


async def test_the_total_size_of_values_is_bounded(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """There used to be only limits per value and for the number of keys: together 400 GB."""
    monkeypatch.setattr(metadata_server, "VALUES_BYTES_MAX", 1000)
    assert (await ask("PUT", url, "a", b"x" * 900))[0] == 200
    assert (await ask("PUT", url, "b", b"x" * 200))[0] == 507
    assert (await ask("PUT", url, "a", b"x" * 700))[0] == 200  # its old value no longer counts
    assert (await ask("PUT", url, "b", b"x" * 200))[0] == 200
    assert (await ask("DELETE", url, "a"))[0] == 200
    assert (await ask("PUT", url, "c", b"x" * 800))[0] == 200
    assert (await ask("PUT", url, "d", b"x" * (metadata_server.VALUE_BYTES_MAX + 1)))[0] == 413


async def test_the_number_of_connections_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_server, "CONNECTIONS_MAX", 3)
    sock = socket.create_server(("127.0.0.1", 0))
    address, server = sock.getsockname(), MetadataServer()
    await server.start(sock)
    talks = [await asyncio.open_connection(*address) for _ in range(4)]
    ends = [asyncio.create_task(reader.readline()) for reader, _ in talks]
    done, waiting = await asyncio.wait(ends, timeout=20, return_when=asyncio.FIRST_COMPLETED)
    assert [b"503" in each.result() for each in done] == [True]
    assert len(waiting) == 3
    for task in waiting:
        task.cancel()
    for _, writer in talks:
        writer.close()
    await server.close()
