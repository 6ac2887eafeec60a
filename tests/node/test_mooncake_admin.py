"""Mooncake's admin routes and metrics on a node, beside those of the real master after the same workload."""

from __future__ import annotations

import asyncio
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from leasehold import Client
from leasehold.admin.mooncake_metrics import ABSENT
from leasehold.testing import mooncake
from leasehold.testing.etcd import EtcdCluster
from leasehold.testing.node import NodeGroup, NodeProcess
from leasehold.testing.process import wait_until
from leasehold.wire import messages as m
from leasehold.wire.errors import MasterError

pytestmark = [pytest.mark.xdist_group("mooncake_admin"), pytest.mark.usefixtures("wheel")]

BOARD = Path(__file__).parent / "data" / "mooncake_board.txt"
MIB = 1 << 20
CLIENT = bytes(range(100, 116))
SEGMENT = m.Segment(bytes(range(16)), "seg-a", 0x10000000, 64 * MIB, "127.0.0.1:1234", "tcp", "")
ABSENT_SHARE_MAX = 0.1
ANSWERED_SHARE_MIN = 0.9

REVOKED_BYTES = 8_192
DIFFERENT = {
    "ha_oplog_last_sequence_id": "a journal is always kept here",
    "ha_oplog_applied_sequence_id": "a journal is always kept here",
}
# How much more the real master has, and why.
MORE = {
    "master_allocated_bytes": (-REVOKED_BYTES, "the space of a revoked put is quarantined here"),
    "segment_allocated_bytes": (-REVOKED_BYTES, "the same"),
    "master_value_size_bytes_bucket": (1, "it observes a zero when it starts"),
    "master_value_size_bytes_count": (1, "the same"),
}
PATHS = (
    "/role",
    "/ha_status",
    "/query_key?key=k0",
    "/query_key?key=nope",
    "/query_key?key=half",
    "/query_key",
    "/batch_query_keys?keys=k0,nope,k1,half",
    "/batch_query_keys",
    "/get_all_segments",
    "/get_segments_detail",
    "/query_segment?segment=seg-a",
    "/query_segment?segment=zz",
    "/query_segment",
    "/api/v1/segments/status?segment=seg-a",
    "/api/v1/segments/status?segment=zz",
    "/api/v1/segments/status",
)

Http = Callable[..., tuple[int, str, bytes]]


def http_of(port: int) -> Http:
    def ask(path: str, method: str = "GET") -> tuple[int, str, bytes]:
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, answer.headers["Content-Type"], answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers.get("Content-Type", ""), error.read()

    return ask


async def work(rpc: str) -> None:
    """Every function that the metrics count, with and without success."""
    async with Client(rpc, client_id=CLIENT) as client:
        call = client.calls.mooncake

        async def refused(name: str, *arguments: Any) -> None:
            with pytest.raises(MasterError):
                await call(name, *arguments)

        tenant, config, every = m.DEFAULT_TENANT, m.ReplicateConfig(), int(m.ReplicaKind.ALL)
        await call("ReMountSegment", [SEGMENT], CLIENT)
        await call("Ping", CLIENT)
        for number in range(3):
            key = b"k%d" % number
            await call("PutStart", CLIENT, key, 1024 * (number + 1), config, tenant)
            await call("PutEnd", CLIENT, m.ObjectMeta(key, None), every, tenant)
        await call("PutStart", CLIENT, b"half", 512, config, tenant)
        await refused("PutStart", CLIENT, b"k0", 64, config, tenant)
        await call("PutStart", CLIENT, b"revoked", REVOKED_BYTES, config, tenant)
        await call("PutRevoke", CLIENT, b"revoked", every, tenant)
        await refused("PutEnd", CLIENT, m.ObjectMeta(b"nope", None), every, tenant)
        await refused("PutRevoke", CLIENT, b"nope", every, tenant)
        await call("BatchPutStart", CLIENT, [b"b0", b"b1", b"k0"], [5120, 6144, 64], config, tenant)
        await call("BatchPutEnd", CLIENT, [m.ObjectMeta(key, None) for key in (b"b0", b"b1", b"nope")], every, tenant)
        await call("BatchPutStart", CLIENT, [b"k0", b"k1"], [64, 64], config, tenant)
        await call("BatchPutRevoke", CLIENT, [b"nope"], every, tenant)
        await call("GetReplicaList", b"k0", tenant)
        await refused("GetReplicaList", b"nope", tenant)
        await call("BatchGetReplicaList", [b"k0", b"k1", b"nope"], tenant)
        await call("GetReplicaListByRegex", b"k.*", tenant)
        await call("ExistKey", b"k0", tenant)
        await call("ExistKey", b"nope", tenant)
        await call("BatchExistKey", [b"k0", b"nope"], tenant)
        await call("BatchQueryIp", [CLIENT, bytes(16)])
        await call("BatchReplicaClear", [b"nope"], CLIENT, "")
        await call("Remove", b"b1", False, tenant)
        await refused("Remove", b"nope", False, tenant)
        await call("BatchRemove", [b"nope", b"b0"], True, tenant)
        await call("RemoveByRegex", b"nothing.*", False, tenant)
        await refused("CopyStart", CLIENT, b"nope", tenant, "seg-a", ["seg-a"])
        await refused("CopyEnd", CLIENT, b"nope", tenant)
        await refused("MoveStart", CLIENT, b"nope", tenant, "seg-a", "seg b")
        await refused("QueryTask", bytes(16))
        await call("FetchTasks", CLIENT, 10)


class Pair:
    """The same workload on both masters: `ours` and `theirs` ask their admin port."""

    def __init__(self, ours: Http, theirs: Http) -> None:
        self.ours = ours
        self.theirs = theirs
        self.values = {http: values(http) for http in (ours, theirs)}  # before any admin route is used: some count


def values(http: Http) -> dict[str, float]:
    """Every sample, with its labels, of metrics that are not ours."""
    status, _, body = http("/metrics")
    assert status == 200
    found = {}
    for line in body.decode().splitlines():
        if not line.startswith(("#", "leasehold_", "python_", "process_")):
            name, _, value = line.rpartition(" ")
            found[name] = float(value)
    return found


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with mooncake.OwnNode() as own, mooncake.MooncakeMaster() as real:
        ours, theirs = http_of(own.admin_port), http_of(real.admin_port)
        wait_until(lambda: theirs("/health")[0] == 200, "the admin port of the real master")
        for rpc in (own.rpc, real.rpc):
            asyncio.run(work(rpc))
        yield Pair(ours, theirs)


def shape(status: int, kind: str, body: bytes) -> tuple[int, str, Any]:
    """Status, content type and parsed body. Addresses are compared too: both masters place from the start."""
    if kind.startswith("application/json"):
        return status, kind, msgspec.json.decode(body)
    return status, kind, body.decode()


@pytest.mark.parametrize("path", PATHS)
def test_a_route_answers_as_the_real_master(path: str, pair: Pair) -> None:
    ours, theirs = shape(*pair.ours(path)), shape(*pair.theirs(path))
    assert blurred(ours) == blurred(theirs)


def blurred(answer: Any) -> Any:
    """Without addresses inside the segment and the bytes that are used of it: placement is each master's own."""
    if isinstance(answer, dict):
        hidden = {"buffer_address_", "allocator_used_bytes", "allocator_usage_percent"}
        return {key: type(value) if key in hidden else blurred(value) for key, value in answer.items()}
    if isinstance(answer, list | tuple):
        return [blurred(each) for each in answer]
    if isinstance(answer, str):
        return re.sub(r"Used\(bytes\): \d+", "Used(bytes): N", answer)
    return answer


def test_all_keys_are_the_same(pair: Pair) -> None:
    ours, theirs = pair.ours("/get_all_keys"), pair.theirs("/get_all_keys")
    assert ours[:2] == theirs[:2]
    assert sorted(ours[2].split(b"\n")) == sorted(theirs[2].split(b"\n"))


def test_health_has_the_fields_of_the_real_master(pair: Pair) -> None:
    ours, theirs = shape(*pair.ours("/health")), shape(*pair.theirs("/health"))
    assert (ours[0], set(theirs[2]) - set(ours[2])) == (theirs[0], set())
    same = ("status", "role", "ha_state", "service_ready")
    assert [ours[2][name] for name in same] == [theirs[2][name] for name in same]


def test_the_summary_has_the_parts_of_the_real_master(pair: Pair) -> None:
    def parts(http: Http) -> set[str]:
        return set(re.findall(r"[A-Za-z][A-Za-z /-]*(?=[=:])", http("/metrics/summary")[2].decode()))

    left_out = parts(pair.theirs) - parts(pair.ours)
    assert left_out <= {
        "Discard", "Released/Total", "StagingSize", "mutation_queue", "queue", "batch", "commits", "sync",
        "skipped", "fail", "checksum", "etcd", "watch", "disconn", "soft-pinned",
    }  # fmt: skip


def test_metrics_have_the_names_types_and_values_of_the_real_master(pair: Pair) -> None:
    kinds = [
        dict(re.findall(r"^# TYPE (\S+) (\S+)$", http("/metrics")[2].decode(), re.MULTILINE))
        for http in (pair.ours, pair.theirs)
    ]
    absent = set(kinds[1]) - set(kinds[0])
    assert absent == set(ABSENT) & set(kinds[1])
    assert len(absent) <= ABSENT_SHARE_MAX * len(kinds[1])
    assert {name: kinds[0][name] for name in kinds[1] if name not in absent} == {
        name: kind for name, kind in kinds[1].items() if name not in absent
    }
    ours, theirs = pair.values[pair.ours], pair.values[pair.theirs]
    differ = {
        name: (ours.get(name), value)
        for name, value in theirs.items()
        if ours.get(name) != value - MORE.get(re.split("[{]", name)[0], (0, ""))[0]
        and name not in DIFFERENT
        and name not in ABSENT
    }
    print(f"{len(kinds[1])} metrics of the real master, {len(absent)} absent; {len(theirs)} samples compared")
    assert differ == {}


def test_the_metrics_can_be_parsed(pair: Pair) -> None:
    families = list(text_string_to_metric_families(pair.ours("/metrics")[2].decode()))
    names = [family.name for family in families]
    assert len(names) == len(set(names))


def test_the_board_of_mooncake_has_data(pair: Pair) -> None:
    """Each line of the file has the metrics that one query of its Grafana board reads."""
    have = {re.split(r"[{ ]", line)[0] for line in pair.ours("/metrics")[2].decode().splitlines()}
    queries = [line.split() for line in BOARD.read_text().splitlines() if not line.startswith("#")]
    answered = sum(have.issuperset(names) for names in queries)
    print(f"{answered} of {len(queries)} queries of the board are answered")
    assert answered >= ANSWERED_SHARE_MIN * len(queries)


def test_remove_all_answers_as_the_real_master(pair: Pair) -> None:
    path = "/api/v1/remove_all?force=true"
    assert pair.ours(path)[0] != 200, "GET must not change anything"
    assert shape(*pair.ours(path, "POST")) == shape(*pair.theirs(path, "POST"))
    assert pair.ours("/get_all_keys")[2] == pair.theirs("/get_all_keys")[2] == b""


def test_a_standby_names_the_leader_and_refuses_the_rest(etcd: EtcdCluster, tmp_path: Path) -> None:
    with NodeGroup(etcd.url, 2, cluster=f"c{uuid4().hex[:8]}", folder=tmp_path) as nodes:
        primary, standby = nodes.primary(), nodes.standbys()[0]
        nodes.settle()
        # A standby can be ready before any node leads; its watch reports the leader key later than the leader serves.
        wait_until(lambda: leader_named_by(standby)["present"], "the standby has seen the leader key")
        for node, role, state in ((primary, "leader", "serving"), (standby, "standby", "standby")):
            assert (words(node, "/role"), words(node, "/ha_status")) == (role, state)
            leader = leader_named_by(node)
            assert (leader["present"], leader["leader_address"]) == (True, primary.rpc)
        status, body = standby.http("/get_all_segments")
        assert (status, msgspec.json.decode(body)) == (
            503,
            {"success": False, "error_code": -1011, "error_message": "service plane is not active"},
        )


def leader_named_by(node: NodeProcess) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(node.http("/leader")[1])
    return found


def words(node: NodeProcess, path: str) -> str:
    return node.http(path)[1].decode()
