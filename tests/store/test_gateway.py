"""The JSON gateway beside that of a real etcd: the same requests, the same status and the same JSON.

Ignored are the ids of cluster and member and the raft term. `DIFFERENT` lists the differences that are meant.
"""

from __future__ import annotations

import asyncio
import random
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from leasehold.etcd.pb import rpc_pb2
from leasehold.store.server.gateway.json_messages import from_json, to_json
from leasehold.store.server.gateway.routes import ROUTES
from leasehold.testing.differential.exempt import exempt, settle_ties
from leasehold.testing.differential.generate import Generator
from leasehold.testing.etcd import EtcdBinary, EtcdCluster, etcd_binaries
from leasehold.testing.store import StoreProcess

OPERATIONS = 2_000
PATHS = {
    "Range": "/v3/kv/range",
    "Put": "/v3/kv/put",
    "DeleteRange": "/v3/kv/deleterange",
    "Txn": "/v3/kv/txn",
    "Compact": "/v3/kv/compaction",
    "LeaseGrant": "/v3/lease/grant",
    "LeaseRevoke": "/v3/lease/revoke",
    "LeaseKeepAlive": "/v3/lease/keepalive",
    "LeaseTimeToLive": "/v3/lease/timetolive",
    "LeaseLeases": "/v3/lease/leases",
}
REFERENCES = [binary for binary in etcd_binaries() if (3, 5, 0) <= binary.version < (3, 6, 0)]
FOO, BAR = b64encode(b"foo").decode(), b64encode(b"bar").decode()
IDS = {"cluster_id", "member_id", "raft_term"}


class Gateway:
    """One server's HTTP port."""

    def __init__(self, http: aiohttp.ClientSession, endpoint: str) -> None:
        self._http = http
        self.url = f"http://{endpoint}"

    async def post(self, path: str, body: bytes) -> tuple[int, list[Any]]:
        """The status and the JSON values of the answer."""
        async with self._http.post(self.url + path, data=body) as answer:
            return answer.status, [known(msgspec.json.decode(line)) for line in (await answer.read()).splitlines()]

    @asynccontextmanager
    async def stream(self, path: str, body: bytes) -> AsyncIterator[aiohttp.StreamReader]:
        async with self._http.post(self.url + path, data=body) as answer:
            assert answer.status == 200
            assert answer.headers["Content-Type"] == "application/json"
            yield answer.content


@asynccontextmanager
async def both(binary: EtcdBinary) -> AsyncIterator[tuple[Gateway, Gateway]]:
    with EtcdCluster(1, binary=binary, arguments=["--unsafe-no-fsync"]) as etcd, StoreProcess() as store:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(60)) as http:
            yield Gateway(http, etcd.endpoints[0]), Gateway(http, store.endpoint)


def known(value: Any) -> Any:
    """The value without ids and terms."""
    if isinstance(value, dict):
        return {name: known(part) for name, part in value.items() if name not in IDS}
    return [known(part) for part in value] if isinstance(value, list) else value


def spelled(pick: random.Random, message: Any) -> dict[str, Any]:
    """The JSON of a message, in one of its spellings."""
    value: dict[str, Any] = {}
    for field, part in message.ListFields():
        name = field.json_name if pick.random() < 0.3 else field.name
        parts = part if field.is_repeated else [part]
        written = [_spelled_part(pick, field, one) for one in parts]
        value[name] = written if field.is_repeated else written[0]
    return value


def _spelled_part(pick: random.Random, field: FieldDescriptor, value: Any) -> Any:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return spelled(pick, value)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return b64encode(value).decode()
    if field.enum_type is not None:
        return value if pick.random() < 0.5 else field.enum_type.values_by_number[value].name
    if isinstance(value, bool):
        return value
    return value if pick.random() < 0.5 else str(value)


@pytest.mark.parametrize("binary", REFERENCES, ids=str)
async def test_random_calls_have_the_same_answers(binary: EtcdBinary) -> None:
    generator = Generator(7)
    errors = 0
    async with both(binary) as sides:
        for number in range(OPERATIONS):
            step = generator.next()
            body = msgspec.json.encode(spelled(generator.random, step.request))
            path = PATHS[step.method]
            left, right = await asyncio.gather(*(side.post(path, body) for side in sides))
            if left != right:
                left, right = (settled(path, step.request, answer) for answer in (left, right))
            assert left == right, (number, path, body[:2_000])
            errors += left[0] != 200
            if left[0] == 200 and "header" in left[1][0]:
                generator.revision = max(generator.revision, int(left[1][0]["header"].get("revision", 0)))
                if isinstance(step.request, rpc_pb2.CompactionRequest):
                    generator.compacted = max(generator.compacted, step.request.revision)
    assert errors > 50


def settled(path: str, request: Message, answer: tuple[int, list[Any]]) -> tuple[int, list[Any]]:
    """With keys of equal rank in one order, and without the remaining seconds of a lease."""
    route = ROUTES[path]
    if answer[0] != 200 or route.many_answers:
        return answer
    message = from_json(route.answer, msgspec.json.encode(answer[1][0]))
    settle_ties(request, message)
    return 200, [to_json(exempt(message))]


SAME = [
    ("/v3/kv/put", {"key": FOO, "value": BAR}),
    ("/v3beta/kv/range", {"key": FOO}),
    ("/v3/kv/range", {"key": FOO, "unknown": {"a": 1}}),
    ("/v3/kv/range", {"key": FOO, "sort_order": "ASCEND", "sort_target": 2}),
    ("/v3/kv/range", {"key": FOO, "limit": None}),
    ("/v3/kv/range", {}),
    ("/v3/lease/grant", {"ID": 77, "TTL": "60"}),
    ("/v3/kv/lease/timetolive", {"ID": "77", "keys": True}),
    ("/v3/kv/lease/leases", {}),
    ("/v3/lease/leases", {}),
    ("/v3/lease/revoke", {"ID": 404}),
    ("/v3/kv/lease/revoke", {"ID": "77"}),
    ("/v3/election/leader", {"name": FOO}),
    ("/v3/election/proclaim", {"name": FOO}),
    ("/v3/election/resign", {}),
    ("/v3/lock/unlock", {"key": FOO}),
    ("/v3/auth/status", {}),
    ("/v3/auth/enable", {}),
    ("/v3/auth/authenticate", {"name": "a", "password": "b"}),
    ("/v3/auth/user/list", {}),
    ("/v3/auth/user/get", {"name": "a"}),
    ("/v3/auth/role/list", {}),
    ("/v3/auth/role/get", {"role": "a"}),
    ("/v3/maintenance/alarm", {"action": "GET"}),
    ("/v3/maintenance/defragment", {}),
    ("/v3/maintenance/transfer-leadership", {"targetID": 1}),
    ("/v3/maintenance/hashkv", {"revision": 1_000_000}),
]
# The text of the error differs, its code and the status do not.
MALFORMED = [
    ("/v3/kv/range", b"zzz"),
    ("/v3/kv/range", b"[]"),
    ("/v3/kv/range", b'{"key":"Zm9v"'),
    ("/v3/kv/range", b'{"key":"!!"}'),
    ("/v3/kv/range", b'{"key":"Zm9"}'),
    ("/v3/kv/range", b'{"key":7}'),
    ("/v3/kv/range", b'{"limit":1.5}'),
    ("/v3/kv/range", b'{"limit":"x"}'),
    ("/v3/kv/range", b'{"limit":99999999999999999999}'),
    ("/v3/kv/range", b'{"keys_only":"true"}'),
    ("/v3/kv/range", b'{"sort_order":"NOPE"}'),
    ("/v3/kv/txn", b'{"compare":{}}'),
    ("/v3/watch", b"zzz"),
    ("/v3/lease/keepalive", b'{"ID":"x"}'),
]
NOT_IN_3_5_1 = "/v3/maintenance/hashkv"
# Path -> fields that only one of them has, or whose value is its own
DIFFERENT = {
    "/v3/cluster/member/list": {"name", "peerURLs", "clientURLs", "ID"},
    "/v3/maintenance/hashkv": {"hash_revision"},
    "/v3/maintenance/status": {
        "dbSize",
        "dbSizeInUse",
        "leader",
        "raftIndex",
        "raftTerm",
        "raftAppliedIndex",
        "version",
    },
}


@pytest.mark.parametrize("binary", REFERENCES, ids=str)
async def test_every_service_has_the_same_answers(binary: EtcdBinary) -> None:
    async with both(binary) as (etcd, store):
        for path, request in SAME:
            if path == NOT_IN_3_5_1 and binary.version == (3, 5, 1):
                continue
            body = msgspec.json.encode(request)
            assert await etcd.post(path, body) == await store.post(path, body), path
        body = b'{"key":"Zm9v"} {"key": garbage'  # only the first value is read
        assert await etcd.post("/v3/kv/range", body) == await store.post("/v3/kv/range", body)
        assert await etcd.post("/v3/kv/range", b"") == await store.post("/v3/kv/range", b"")
        for path, body in MALFORMED:
            left, right = await etcd.post(path, body), await store.post(path, body)
            assert left[0] == right[0], (path, body)
            assert left[1][0]["code"] == right[1][0]["code"], (path, body)
        for path, own in DIFFERENT.items():
            if path == NOT_IN_3_5_1 and binary.version == (3, 5, 1):
                continue
            left, right = await etcd.post(path, b"{}"), await store.post(path, b"{}")
            assert left[0] == right[0] == 200
            assert without(left[1], own) == without(right[1], own)


def without(value: Any, names: set[str]) -> Any:
    if isinstance(value, dict):
        return {name: without(part, names) for name, part in value.items() if name not in names}
    return [without(part, names) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize("binary", REFERENCES, ids=str)
async def test_streams_have_the_same_answers(binary: EtcdBinary) -> None:
    async with both(binary) as sides:
        left, right = await asyncio.gather(*(streams(side) for side in sides))
    assert left == right


async def streams(side: Gateway) -> list[Any]:
    """The answers of every stream."""
    seen: list[Any] = []

    async def put(key: str, value: str) -> None:
        assert (await side.post("/v3/kv/put", msgspec.json.encode({"key": key, "value": value})))[0] == 200

    async def line(content: aiohttp.StreamReader) -> None:
        async with asyncio.timeout(60):
            seen.append(known(msgspec.json.decode(await content.readline())))

    await put(FOO, BAR)
    seen.append(await side.post("/v3/lease/grant", b'{"ID":5,"TTL":100}'))
    seen.append(await side.post("/v3/lease/keepalive", b'{"ID":5}{"ID":"6"} {"ID":5}'))
    seen.append(await side.post("/v3/lease/keepalive", b""))
    create = {"create_request": {"key": FOO, "start_revision": "2", "prev_kv": True, "watch_id": 3}}
    async with side.stream("/v3/watch", msgspec.json.encode(create)) as watch:
        await line(watch)
        await line(watch)
        await put(FOO, FOO)
        await line(watch)
        await side.post("/v3/kv/deleterange", msgspec.json.encode({"key": FOO}))
        await line(watch)
    empty = {"create_request": {"key": FOO, "range_end": BAR}}
    async with side.stream("/v3/watch", msgspec.json.encode(empty)) as watch:
        await line(watch)
    two = b'{"create_request":{"key":"YQ=="}}{"create_request":{"key":"YQ=="}}{"cancel_request":{"watch_id":1}}'
    async with side.stream("/v3/watch", two) as watch:
        for _ in range(3):
            await line(watch)
    await put(b64encode(b"elect/1").decode(), BAR)
    async with side.stream("/v3/election/observe", msgspec.json.encode({"name": b64encode(b"elect").decode()})) as seat:
        await line(seat)
    seen.append(await side.post("/v3/lock/lock", msgspec.json.encode({"name": FOO, "lease": 5})))
    campaign = {"name": b64encode(b"seat").decode(), "lease": "5", "value": BAR}
    seen.append(await side.post("/v3/election/campaign", msgspec.json.encode(campaign)))
    return seen


async def test_every_path_has_its_method() -> None:
    assert len(ROUTES) == 51
    assert {route.method.rpartition(b"/")[2] for route in ROUTES.values() if route.many_answers} == {
        b"Watch",
        b"LeaseKeepAlive",
        b"Snapshot",
        b"Observe",
    }
