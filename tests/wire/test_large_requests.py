"""Requests that ask for much: others are served meanwhile, and the answer has a bound."""

from __future__ import annotations

import asyncio

import pytest
from tests.wire.test_hot import CLIENT, Bench, T, Talk
from tests.wire.test_rpc import HANG_MS

from leasehold.base import limits
from leasehold.index.patterns import compile_pattern
from leasehold.node.service import regex_listing
from leasehold.node.service.descriptors import DescriptorWriter
from leasehold.wire import messages as m
from leasehold.wire.body import pack, unpack
from leasehold.wire.channel import open_channel
from leasehold.wire.client import Client
from leasehold.wire.errors import MasterError, RpcRefused
from leasehold.wire.frame import Err
from leasehold.wire.tables import RELEASES

SEGMENT = m.Segment(b"s" * 16, "s", 1 << 40, 1 << 30, "e:1", "tcp")
RELEASE = RELEASES["0.3.13"]


def filled(count: int) -> Bench:
    bench = Bench(RELEASE)
    bench("MountSegment", SEGMENT, CLIENT)
    for start in range(0, count, 1000):
        keys = [b"key-%06d" % number for number in range(start, start + 1000)]
        bench("BatchPutStart", CLIENT, keys, [64] * 1000, m.ReplicateConfig(), T)
        bench("BatchPutEnd", CLIENT, [m.ObjectMeta(key, None) for key in keys], 4, T)
    return bench


@pytest.fixture(scope="module")
def bench() -> Bench:
    return filled(20_000)


async def test_a_pattern_over_many_keys_lets_others_be_served(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """All keys were searched, and all descriptors written, in one go: a second and more for a million objects."""
    monkeypatch.setattr(regex_listing, "range_step_objects", 200)
    talk = Talk(bench)
    host, port = talk.listener.address
    async with (
        Client(f"{host}:{port}", timeout_ms=HANG_MS) as asker,
        Client(f"{host}:{port}", timeout_ms=HANG_MS) as other,
    ):
        await other.service_ready()
        listing = asyncio.create_task(asker.get_replica_list_by_regex("key-"))
        served = 0
        while not listing.done():
            await other.exist_key("key-000001")
            served += 1
        found = await listing
        assert len(found) == 20_000
        assert found[b"key-019999"] == (await asker.get_replica_list("key-019999")).replicas
        assert served >= 15
        few = await asker.get_replica_list_by_regex("key-00001[0-4]")
        assert sorted(few) == [b"key-00001%d" % digit for digit in range(5)]
    talk.server.close()


def test_a_long_listing_is_what_the_reference_codec_reads_and_writes(bench: Bench) -> None:
    """Below the socket: `Bench` holds each answer against the reference. Here the steps are put end to end."""
    found = regex_listing.Found(bench.index, T, compile_pattern(b"key-0"), _writer())
    while found.step(1000):
        pass
    returns = RELEASE.functions["GetReplicaListByRegex"].returns
    value = unpack(returns, found.body(returns))
    assert len(value) == 20_000
    assert unpack(returns, pack(returns, value)) == value


def _writer() -> DescriptorWriter:
    returns = RELEASE.functions["GetReplicaListByRegex"].returns
    return DescriptorWriter(RELEASE.name, regex_listing.replica_of(returns))


async def test_a_listing_over_its_bound_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regex_listing, "regex_answer_bytes_max", 100_000)
    talk = Talk(bench)
    host, port = talk.listener.address
    async with Client(f"{host}:{port}", timeout_ms=HANG_MS) as client:
        with pytest.raises(MasterError) as caught:
            await client.get_replica_list_by_regex("key-")
        assert caught.value.code == -600
        assert len(await client.get_replica_list_by_regex("key-0000")) == 100
    talk.server.close()


@pytest.mark.parametrize("name", ["BatchExistKey", "BatchGetReplicaList", "BatchPutEnd"])
async def test_a_batch_of_too_many_keys_is_refused_and_others_are_served(bench: Bench, name: str) -> None:
    """Sixty-four megabytes of them held the loop for longer than a guardian lets a worker be silent."""
    talk = Talk(bench)
    function = RELEASE.functions[name]
    assert function.request is not None
    channel = await open_channel(*talk.listener.address, timeout_ms=HANG_MS)

    def body(count: int) -> bytes:
        keys = [b"k"] * count
        many = (CLIENT, [m.ObjectMeta(key, None) for key in keys], 4, T) if name == "BatchPutEnd" else (keys, T)
        return pack(function.request, many)  # type: ignore[arg-type] # checked above

    await channel.raw_call(function.id, body(limits.wire_batch_items_max), timeout_ms=HANG_MS)
    with pytest.raises(RpcRefused) as caught:
        await channel.raw_call(function.id, body(limits.wire_batch_items_max + 1), timeout_ms=HANG_MS)
    assert caught.value.err == Err.INVALID_ARGUMENT
    await channel.raw_call(function.id, body(1), timeout_ms=HANG_MS)
    channel.close()
    talk.server.close()


async def test_a_batch_of_our_own_calls_has_the_same_bound(bench: Bench) -> None:
    talk = Talk(bench)
    host, port = talk.listener.address
    async with Client(f"{host}:{port}", timeout_ms=HANG_MS) as client:
        with pytest.raises(RpcRefused):
            await client.batch_get_replica_list(["k"] * (limits.wire_batch_items_max + 1))
        with pytest.raises(RpcRefused):
            await client.batch_put_start(["k"] * 40_000, [1] * 40_000)
        assert await client.service_ready() == "2.0.0"
    talk.server.close()
