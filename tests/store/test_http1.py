"""HTTP/1.1 on the store's port: probes, and clients that are slow, wrong or hostile."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import leasehold
from leasehold.etcd.pb import rpc_pb2
from leasehold.store.opening import open_memory
from leasehold.store.server.gateway.gateway import BODY_BYTES_MAX
from leasehold.store.server.gateway.json_messages import BadJson, JsonValues, from_json
from leasehold.store.server.http1 import connection as http1
from leasehold.store.server.serve import StoreServer, Tls
from leasehold.testing.certificates import CertificateAuthority
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.store import StoreProcess
from leasehold.testing.waiting import until

MIB = 1 << 20


async def raw(server: StoreServer, data: bytes) -> bytes:
    """Everything that the server answers to `data`, until it closes."""
    reader, writer = await asyncio.open_connection(*server.address.split(":"))
    writer.write(data)
    with suppress(ConnectionError):
        async with asyncio.timeout(60):
            answer = await reader.read(-1)
    writer.close()
    return answer


def request(line: str, *headers: str, body: bytes = b"") -> bytes:
    head = [line + " HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


async def test_probes_answer_as_etcds_do(served_store: StoreProcess, etcd: EtcdCluster) -> None:
    async with aiohttp.ClientSession() as http:
        for path in ("/health", "/health?serializable=true", "/version", "/nothing"):
            seen = []
            for endpoint in (etcd.endpoints[0], served_store.endpoint):
                async with http.get(f"http://{endpoint}{path}") as answer:
                    text = await answer.text()
                    seen.append((answer.status, json.loads(text).keys() if text.startswith("{") else text))
            assert seen[0] == seen[1], path
        async with http.post(f"http://{served_store.endpoint}/health") as answer:
            assert answer.status == 405
        for path in ("/livez", "/readyz", "/readyz/non_learner"):
            async with http.get(f"http://{served_store.endpoint}{path}") as answer:
                assert (answer.status, await answer.text()) == (200, "ok\n")
        async with http.get(f"http://{served_store.endpoint}/readyz?verbose&exclude=non_learner") as answer:
            text = await answer.text()
            assert "[+]linearizable_read ok\n" in text
            assert "non_learner" not in text
        async with http.get(f"http://{served_store.endpoint}/metrics") as answer:
            text = await answer.text()
            assert "etcd_server_has_leader 1\n" in text
            assert "\nprocess_resident_memory_bytes " in text


async def test_health_shows_alarms(server: StoreServer) -> None:
    async with aiohttp.ClientSession(f"http://{server.address}") as http:
        alarm = {"action": "ACTIVATE", "alarm": "CORRUPT"}
        async with http.post("/v3/maintenance/alarm", json=alarm) as answer:
            assert answer.status == 200
        async with http.get("/health") as answer:
            assert (answer.status, await answer.json(content_type=None)) == (
                503,
                {"health": "false", "reason": "ALARM CORRUPT"},
            )
        async with http.get("/health?exclude=CORRUPT") as answer:
            assert answer.status == 200
        async with http.get("/readyz") as answer:
            assert answer.status == 503
            assert "[-]data_corruption failed: alarm activated: CORRUPT" in await answer.text()


async def test_over_tls_both_protocols_share_the_port(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    engine = open_memory()
    server = StoreServer(engine, "127.0.0.1:0", Tls(*authority.server_files(tmp_path)))
    await server.start()
    ca = authority.ca_file(tmp_path)
    trusted = ssl.create_default_context(cafile=str(ca))
    async with aiohttp.ClientSession() as http, http.get(f"https://{server.address}/health", ssl=trusted) as answer:
        assert (await answer.json(content_type=None))["health"] == "true"
    async with await leasehold.connect(f"{server.url}?ca={ca}") as client:
        await client.put(b"a", b"1")
    await server.stop(0.1)
    engine.close()


async def test_requests_of_a_browser_are_refused(server: StoreServer) -> None:
    body = b'{"key":"Zm9v"}'
    async with aiohttp.ClientSession(f"http://{server.address}") as http:
        async with http.post("/v3/kv/put", data=body, headers={"Origin": "http://evil.example"}) as answer:
            assert answer.status == 403
        async with http.post("/v3/kv/put", data=body, headers={"Host": "evil.example"}) as answer:
            assert answer.status == 421
            assert "allowed_hosts" in await answer.text()
        async with http.post("/v3/kv/range", data=body) as answer:
            assert "kvs" not in await answer.json()


async def test_requests_follow_one_another_on_one_connection(server: StoreServer) -> None:
    put = request("POST /v3/kv/put", body=b'{"key":"YQ=="}')
    last = request("GET /version", "Connection: close")
    answer = await raw(server, put * 50 + last)
    assert answer.count(b"HTTP/1.1 200 OK") == 51
    assert b'"revision":"51"' in answer


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: 1.1.1.1\r\n\r\n", b"431"),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 5_000, b"431"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"POST /v3/kv/put HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", b"400"),
        (b"POST /v3/kv/put HTTP/1.1\r\nHost: 1.1.1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"400"),
    ],
    ids=["target", "headers", "nonsense", "length", "chunk"],
)
async def test_malformed_requests_are_refused_and_closed(server: StoreServer, data: bytes, status: bytes) -> None:
    assert (await raw(server, data)).startswith(b"HTTP/1.1 " + status)
    await until(lambda: not len(server._clients))


async def test_a_body_that_is_too_large_is_refused(server: StoreServer) -> None:
    reader, writer = await asyncio.open_connection(*server.address.split(":"))
    writer.write(f"POST /v3/kv/put HTTP/1.1\r\nHost: 1.1.1.1\r\nContent-Length: {1 << 40}\r\n\r\n".encode())
    piece = b" " * MIB
    sent = 0
    with suppress(ConnectionError):
        async with asyncio.timeout(60):
            while not reader.at_eof() and sent < 100 * MIB:
                writer.write(piece)
                await writer.drain()
                sent += len(piece)
                await asyncio.sleep(0)
    assert sent < BODY_BYTES_MAX + 30 * MIB  # the rest is in buffers of the kernel
    writer.close()
    too_long = {"key": "YQ==", "value": "QUFB" * (600 * 1024)}
    http = aiohttp.ClientSession(f"http://{server.address}")
    async with http, http.post("/v3/kv/put", json=too_long) as answer:
        assert answer.status == 400
        assert (await answer.json())["message"] == "etcdserver: request is too large"


async def test_slow_clients_are_disconnected(server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "HEAD_S", 0.05)
    monkeypatch.setattr(http1, "BODY_S", 0.05)
    monkeypatch.setattr(http1, "IDLE_S", 0.05)
    assert await raw(server, b"GET /health HTT") == b""
    assert await raw(server, b"POST /v3/kv/put HTTP/1.1\r\nHost: 1.1.1.1\r\nContent-Length: 9\r\n\r\n{") == b""
    assert (await raw(server, request("GET /version"))).startswith(b"HTTP/1.1 200")
    await until(lambda: not len(server._clients))


async def test_a_stream_ends_with_its_client(server: StoreServer) -> None:
    body = b'{"create_request":{"key":"YQ=="}}'
    reader, writer = await asyncio.open_connection(*server.address.split(":"))
    writer.write(request("POST /v3/watch", body=body))
    async with asyncio.timeout(60):
        await reader.readuntil(b'"created":true}}\n')
    assert server._clients.calls == 1
    writer.close()
    await until(lambda: not len(server._clients))
    assert not server._engine.store._hub._by_key


async def test_requests_of_a_stream_may_come_one_by_one(server: StoreServer) -> None:
    """A chunked body that stays open: each request is answered before the next one is sent."""

    async def requests() -> Any:
        yield b'{"ID":'
        yield b"7}"
        await got.wait()
        yield b'{"ID":8}'

    got = asyncio.Event()
    async with aiohttp.ClientSession(f"http://{server.address}") as http:
        await http.post("/v3/lease/grant", json={"ID": 7, "TTL": 60})
        async with asyncio.timeout(60), http.post("/v3/lease/keepalive", data=requests()) as answer:
            assert json.loads(await answer.content.readline())["result"]["TTL"] == "60"
            got.set()
            assert json.loads(await answer.content.readline())["result"]["ID"] == "8"
            assert await answer.content.readline() == b""


def test_json_values_are_split_however_they_arrive() -> None:
    values = [b'{"a":"}{\\"","b":[1,{}]}', b"[]", b'"x\\\\"', b"17", b"null", b'{"c":{}}']
    data = b"  " + b" \n".join(values) + b" "
    for seed in range(300):
        chance = random.Random(seed)
        splitter = JsonValues()
        found: list[bytes] = []
        place = 0
        while place < len(data):
            size = chance.choice((1, 2, 3, 50))
            found += splitter.feed(data[place : place + size])
            place += size
        assert [*found, *([splitter.rest()] if splitter.rest() else [])] == values, seed


def test_any_bytes_are_json_or_refused() -> None:
    """Whatever comes, there is a message or `BadJson`, and nothing else."""
    chance = random.Random(1)
    good = b'{"compare":[{"key":"YQ==","version":"1"}],"success":[{"request_txn":{"success":[{}]}}]}'
    pieces = [b"{", b"}", b"[", b"]", b'"', b"\\", b",", b":", b"1e9", b"-", b"null", b"\xff", b"\0", b'"success"']
    for _ in range(20_000):
        data = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            place = chance.randrange(len(data) + 1)
            data[place : place + chance.randint(0, 3)] = chance.choice(pieces)
        for value in JsonValues().feed(bytes(data)):
            with suppress(BadJson):
                from_json(rpc_pb2.TxnRequest, value)
    for deep in (b'{"success":[' + b'{"request_txn":{"success":[' * 200, b"[" * 100_000):
        with pytest.raises(BadJson):
            from_json(rpc_pb2.TxnRequest, deep + b"]}" * 200)
    nested = b'{"success":[{"request_txn":' * 150 + b"{}" + b"}]}" * 150
    with pytest.raises(BadJson, match="depth"):
        from_json(rpc_pb2.TxnRequest, nested)


async def test_random_bytes_do_no_harm(server: StoreServer) -> None:
    chance = random.Random(2)
    good = request("POST /v3/kv/range", body=b'{"key":"YQ=="}') + request("GET /health")
    for _ in range(300):
        data = bytearray(good)
        for _ in range(chance.randint(1, 5)):
            place = chance.randrange(len(data))
            data[place : place + chance.randint(0, 8)] = chance.randbytes(chance.randint(0, 8))
        _, writer = await asyncio.open_connection(*server.address.split(":"))
        writer.write(bytes(data))
        await writer.drain()
        writer.close()
    assert (await raw(server, request("GET /health", "Connection: close"))).endswith(b'{"health":"true","reason":""}')
    await until(lambda: not len(server._clients))


async def test_replaced_certificates_are_used_for_new_connections(tmp_path: Path) -> None:
    """The store kept the certificate of its start until it was restarted."""

    def serial(trusted: ssl.SSLContext) -> str:
        host, _, port = server.address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=20) as plain, trusted.wrap_socket(plain) as sock:
            return str((sock.getpeercert() or {}).get("serialNumber"))

    def trusting(authority: CertificateAuthority, name: str) -> ssl.SSLContext:
        (tmp_path / name).mkdir()
        made = ssl.create_default_context(cafile=str(authority.ca_file(tmp_path / name)))
        made.check_hostname = False
        return made

    authority, other = CertificateAuthority(), CertificateAuthority()
    files = authority.server_files(tmp_path)
    engine = open_memory()
    server = StoreServer(engine, "127.0.0.1:0", Tls(*files))
    await server.start()
    first = await asyncio.to_thread(serial, trusting(authority, "first"))
    assert first == await asyncio.to_thread(serial, trusting(authority, "again"))
    files[0].write_text("not a certificate")  # kept out: the last good one stays in use
    await asyncio.sleep(1.1)
    assert first == await asyncio.to_thread(serial, trusting(authority, "kept"))
    for path, new in zip(files, other.server(), strict=True):
        path.write_bytes(new)
    trusted = trusting(other, "other")

    async def replaced() -> bool:
        try:
            return await asyncio.to_thread(serial, trusted) != first
        except ssl.SSLError:
            return False

    await until(replaced, "the new certificate of another authority is served")
    with pytest.raises(ssl.SSLError):
        await asyncio.to_thread(serial, trusting(authority, "last"))
    await server.stop(0.1)
    engine.close()
