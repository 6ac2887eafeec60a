"""The metadata server of the transfer engine: a table in the store that many hosts write to, with bounds."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import aiohttp
import msgspec
import pytest

from leasehold.coord.api import Coord
from leasehold.coord.connect import connect
from leasehold.node.service import metadata_server, metadata_table
from leasehold.node.service.metadata_cleanup import UNREACHABLE_MS, CleanupRules
from leasehold.node.service.metadata_owners import OwnerCheck, Pings, Probe, Registration, probe, registration_of
from leasehold.node.service.metadata_server import MetadataServer
from leasehold.node.service.metadata_table import MetadataTable

NAME: Final = "10.0.0.1:17000"
RPC_META: Final = f"mooncake/rpc_meta/{NAME}"


class Pinging:
    """The primary's knowledge of one client, as a test sets it."""

    def __init__(self) -> None:
        self.answers = [Pings.NO_CLIENT]

    async def ask(self, name: str) -> Pings:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@asynccontextmanager
async def served(coord: Coord, pinging: Pinging | None = None) -> AsyncIterator[str]:
    sock = socket.create_server(("127.0.0.1", 0))
    table = MetadataTable(coord, b"metadata/")
    following = asyncio.create_task(table.follow())
    server = MetadataServer(table, OwnerCheck((pinging or Pinging()).ask))
    host, port = sock.getsockname()
    await server.start(sock)
    try:
        yield f"http://{host}:{port}/metadata"
    finally:
        following.cancel()
        await server.close()


@pytest.fixture
async def coord() -> AsyncIterator[Coord]:
    async with await connect("memory://") as coord:
        yield coord


@pytest.fixture
async def url(coord: Coord) -> AsyncIterator[str]:
    async with served(coord) as url:
        yield url


async def ask(method: str, url: str, key: str, body: bytes | None = None) -> tuple[int, bytes]:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url, params={"key": key}, data=body) as answer,
    ):
        return answer.status, await answer.read()


def rpc_meta(port: int, host: str = "127.0.0.1") -> bytes:
    return msgspec.json.encode({"ip_or_host_name": host, "rpc_port": port})


async def test_it_stores_and_returns_values(url: str) -> None:
    assert await ask("GET", url, "mooncake/ram/a") == (404, b"metadata not found")
    assert (await ask("PUT", url, "mooncake/ram/a", b"{}"))[0] == 200
    assert await ask("GET", url, "mooncake/ram/a") == (200, b"{}")
    assert (await ask("DELETE", url, "mooncake/ram/a"))[0] == 200
    assert (await ask("DELETE", url, "mooncake/ram/a"))[0] == 404
    assert await ask("GET", url, "") == (400, b"Missing key parameter")
    assert (await ask("PUT", url, "k" * 5000, b"{}"))[0] == 400


async def test_every_server_shows_the_same_table(coord: Coord) -> None:
    large = msgspec.json.encode([{"addr": number, "rkey": [number] * 4} for number in range(20_000)])
    async with served(coord) as one, served(coord) as other:
        assert (await ask("PUT", one, "mooncake/ram/a", large))[0] == 200
        assert await ask("GET", other, "mooncake/ram/a") == (200, large)
    async with served(coord) as later:
        assert await ask("GET", later, "mooncake/ram/a") == (200, large)


async def test_the_total_size_of_values_is_bounded(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """There used to be only limits per value and for the number of keys: together 400 GB."""
    monkeypatch.setattr(metadata_table, "metadata_values_bytes_max", 1000)
    assert (await ask("PUT", url, "a", b"x" * 900))[0] == 200
    while (await ask("PUT", url, "b", b"x" * 200))[0] != 507:  # the sizes follow the store's watch
        assert (await ask("DELETE", url, "b"))[0] == 200
    assert (await ask("PUT", url, "a", b"x" * 700))[0] == 200  # its old value no longer counts
    while (await ask("PUT", url, "b", b"x" * 200))[0] != 200:
        pass
    incompressible = os.urandom(2 * 1024 * 1024)
    assert (await ask("PUT", url, "d", incompressible))[0] == 507
    assert (await ask("PUT", url, "d", b"x" * (4 * 1024 * 1024 + 1)))[0] == 413


async def test_the_number_of_connections_is_bounded(coord: Coord, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_server, "metadata_connections_max", 3)
    async with served(coord) as url:
        host, port = url.removeprefix("http://").removesuffix("/metadata").split(":")
        talks = [await asyncio.open_connection(host, int(port)) for _ in range(4)]
        ends = [asyncio.create_task(reader.readline()) for reader, _ in talks]
        done, waiting = await asyncio.wait(ends, timeout=20, return_when=asyncio.FIRST_COMPLETED)
        assert [each.result() for each in done] == [b""]  # the connection that was idle for longest made room
        assert len(waiting) == 3
        for task in waiting:
            task.cancel()
        for _, writer in talks:
            writer.close()


# --- who may register a name ---


@pytest.mark.parametrize(
    ("answers", "status"),
    [
        ([Pings.OPEN], 400),
        ([Pings.UNKNOWN, Pings.UNKNOWN, Pings.OPEN], 400),  # a new primary: wait for the next ping
        ([Pings.UNKNOWN, Pings.CLOSED], 200),
        ([Pings.CLOSED], 200),
        ([Pings.NO_CLIENT], 200),
    ],
)
async def test_a_name_whose_client_pings_is_taken(coord: Coord, answers: list[Pings], status: int) -> None:
    pinging = Pinging()
    pinging.answers = answers
    with socket.create_server(("127.0.0.1", 0)) as unused:
        closed_port = unused.getsockname()[1]
    async with served(coord, pinging) as url:
        assert (await ask("PUT", url, RPC_META, rpc_meta(closed_port)))[0] == 200
        assert await ask("PUT", url, RPC_META, rpc_meta(closed_port)) == (200, b"metadata unchanged")
        assert (await ask("PUT", url, RPC_META, rpc_meta(1)))[0] == status


async def test_a_name_whose_address_accepts_connections_is_taken(url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as owner:
        assert (await ask("PUT", url, RPC_META, rpc_meta(owner.getsockname()[1])))[0] == 200
        assert await ask("PUT", url, RPC_META, rpc_meta(1)) == (400, b"Duplicate rpc_meta key not allowed")
    assert await ask("PUT", url, RPC_META, rpc_meta(1)) == (200, b"metadata updated")


async def test_a_refused_process_does_not_delete_the_key_of_the_live_one(coord: Coord) -> None:
    """The real client deletes the key that it was refused, also at the real server, which then has none."""
    pinging = Pinging()
    async with served(coord, pinging) as url:
        with socket.create_server(("127.0.0.1", 0)) as owner:
            mine = rpc_meta(owner.getsockname()[1])
            assert (await ask("PUT", url, RPC_META, mine))[0] == 200
            assert (await ask("PUT", url, RPC_META, rpc_meta(1)))[0] == 400
            assert (await ask("DELETE", url, RPC_META))[0] == 409
            assert await ask("GET", url, RPC_META) == (200, mine)
    async with served(coord, pinging) as other:  # another node, which has refused no process
        pinging.answers = [Pings.OPEN]
        assert (await ask("DELETE", other, RPC_META))[0] == 409
        pinging.answers = [Pings.NO_CLIENT]  # a client that stops in order unmounts its segments first
        assert (await ask("DELETE", other, RPC_META))[0] == 200


async def test_of_two_processes_that_register_a_dead_name_one_gets_in(url: str) -> None:
    assert (await ask("PUT", url, RPC_META, rpc_meta(1)))[0] == 200
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        values = [rpc_meta(each.getsockname()[1]) for each in (one, other)]
        answers = await asyncio.gather(*(ask("PUT", url, RPC_META, value) for value in values))
        assert sorted(status for status, _ in answers) == [200, 400]
        (winner,) = (value for value, (status, _) in zip(values, answers, strict=True) if status == 200)
        assert await ask("GET", url, RPC_META) == (200, winner)


# --- cleanup ---

HERE: Final = Registration(NAME, RPC_META, f"mooncake/ram/{NAME}")


def test_keys_belong_to_registrations() -> None:
    assert registration_of(RPC_META) == registration_of(f"mooncake/ram/{NAME}") == HERE
    other = registration_of("mooncake/blue/ram/host:1")
    assert other == Registration("host:1", "mooncake/blue/rpc_meta/host:1", "mooncake/blue/ram/host:1")
    assert [registration_of(key) for key in ("mooncake/ram/", "program/a", "ram/a")] == [None, None, None]


async def test_a_probe_distinguishes_refused_from_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = listening.getsockname()
        assert await probe(address) is Probe.ACCEPTED
    assert await probe(address) is Probe.REFUSED
    assert await probe(("no-such-host.invalid", 1)) is Probe.SILENT
    assert await probe(None) is Probe.REFUSED


def test_a_name_is_dead_only_when_no_client_lends_under_it_and_no_process_accepts() -> None:
    rules = CleanupRules(10_000)
    assert rules.due(0, {HERE}, {NAME}) == [], "a client lends segments under this name"
    assert rules.due(1_000, {HERE}, set()) == [HERE]
    assert not rules.probed(1_000, HERE, Probe.REFUSED)
    assert rules.due(1_100, {HERE}, set()) == [], "it was just probed"
    assert rules.due(4_000, {HERE}, {NAME}) == []
    assert rules.due(12_000, {HERE}, set()) == [HERE], "it lent again meanwhile: its time starts again"
    assert not rules.probed(12_000, HERE, Probe.SILENT)
    assert not rules.probed(21_999, HERE, Probe.SILENT)
    assert rules.probed(22_000, HERE, Probe.SILENT), "it lent segments, so its silence counts"


def test_a_reader_out_of_reach_keeps_its_entry_for_a_day() -> None:
    rules = CleanupRules(10_000)
    assert rules.due(0, {HERE}, set()) == [HERE]
    assert not rules.probed(0, HERE, Probe.SILENT)
    assert not rules.probed(UNREACHABLE_MS - 1, HERE, Probe.SILENT)
    assert rules.probed(UNREACHABLE_MS, HERE, Probe.SILENT)
    assert not rules.probed(UNREACHABLE_MS, HERE, Probe.ACCEPTED)
    assert not rules.probed(UNREACHABLE_MS + 1, HERE, Probe.REFUSED)
    assert rules.probed(UNREACHABLE_MS + 10_001, HERE, Probe.REFUSED)


def test_live_processes_are_probed_less_and_less_often() -> None:
    rules, now_ms, probes = CleanupRules(10_000), 0, 0
    while now_ms < 3_600_000:
        if rules.due(now_ms, {HERE}, set()):
            probes += 1
            assert not rules.probed(now_ms, HERE, Probe.ACCEPTED)
        now_ms += 1_000
    assert probes <= 12


async def test_a_rebound_name_reads_and_writes_nothing(url: str) -> None:
    """A page whose host name resolves to this address could redirect transfers to other memory."""
    async with aiohttp.ClientSession() as session:
        for send in (session.get, session.put, session.delete):
            async with send(url, params={"key": "k"}, data=b"v", headers={"Host": "evil.example"}) as answer:
                assert (answer.status, "allowed_hosts" in await answer.text()) == (421, True)
