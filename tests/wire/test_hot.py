"""The hot paths answer what the reference codec would have written: each answer decodes, and encodes to itself."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from leasehold.base.clock import ManualClock
from leasehold.base.limits import absent_removes_bytes_max
from leasehold.ha.outbox import FOREVER, Outbox
from leasehold.ha.serving import Serving
from leasehold.index.index import Index
from leasehold.index.settings import IndexSettings
from leasehold.node.service.functions import MasterService
from leasehold.wire import messages as m
from leasehold.wire.body import pack, unpack
from leasehold.wire.frame import ResponseReader, request
from leasehold.wire.native import GET, Get
from leasehold.wire.schema import Failed
from leasehold.wire.server import Server, listen
from leasehold.wire.tables import RELEASES, Release

CLIENT = b"c" * 16
NOW_MS = 1_000
T = m.DEFAULT_TENANT
Call = Callable[..., Any]


class Bench:
    """A service over an index, called below the socket; every answer is checked against the reference codec."""

    def __init__(self, release: Release, outbox: Outbox | None = None) -> None:
        self.release = release
        self.index = Index(IndexSettings(), random.Random(1).randrange)
        self.index.begin(0, 1)
        self.serving = Serving(self.index, Outbox.always_open() if outbox is None else outbox)
        self.serving.may_serve(NOW_MS)
        self.handlers = MasterService(self.serving, release).handlers()
        self.seq = 0

    def __call__(self, name: str, *arguments: Any, literal: bool = True) -> Any:
        function = self.release.functions[name]
        assert function.request is not None
        self.seq += 1
        sent = function.sent(arguments)
        body = pack(function.request, tuple(sent) if len(sent) > 1 else sent[0], literal=literal)
        frame = self.handlers[function.id](_NO_CONNECTION, self.seq, body)
        self.index.log.take_outbox()
        self.index.log.durable(self.index.log.last_n)
        assert isinstance(frame, bytes)
        (answer,) = ResponseReader(1 << 30).feed(frame)
        assert (answer.seq, answer.err) == (self.seq, 0)
        result = unpack(function.returns, answer.body)
        again = pack(function.returns, result, literal=False)
        if len(again) == len(answer.body):
            assert again == answer.body
        else:  # lengths may be written wider than they must be, where a count or an endpoint is long
            assert answer.body[4] & 0b11000 > (again[4] & 0b11000 if again[0] & 1 else 0)
        return result

    def meta(self, key: bytes, checksum: int | None = None) -> Any:
        return m.ObjectMeta(key, checksum) if self.release.object_meta else key

    def config(self, **changes: Any) -> Any:
        kind = m.ReplicateConfig if self.release.object_meta else m.ReplicateConfig0312
        return kind(**changes)


class _NoConnection:
    peer = "127.0.0.1:1"
    source = b"127.0.0.1:1"


_NO_CONNECTION: Any = _NoConnection()


@pytest.fixture(params=list(RELEASES))
def bench(request: pytest.FixtureRequest) -> Bench:
    made = Bench(RELEASES[request.param])
    for number, endpoint in enumerate(("127.0.0.1:1", "host:2", "long" * 100)):
        spec = m.Segment(bytes([number]) * 16, f"seg{number}", 1 << 40, 1 << 26, endpoint, "tcp")
        assert made("MountSegment", spec, CLIENT) is None
    return made


def put(bench: Bench, key: bytes, checksum: int | None = None, **config: Any) -> list[m.ReplicaDescriptor]:
    started: list[m.ReplicaDescriptor] = bench("PutStart", CLIENT, key, 64, bench.config(**config), T)
    assert bench("PutEnd", CLIENT, bench.meta(key, checksum), 4, T) is None
    return started


@pytest.mark.parametrize("literal", [True, False])
def test_one_object(bench: Bench, literal: bool) -> None:
    for name, config in {"seg0": {}, "seg2": {}, "two": {"replica_num": 2}, "three": {"replica_num": 3}}.items():
        key = name.encode()
        preferred = [name] if name.startswith("seg") else []
        started = put(bench, key, 77, preferred_segments=preferred, **config)
        found = bench("GetReplicaList", key, T, literal=literal)
        assert [each.place for each in found.replicas] == [each.place for each in started]
        assert found.lease_ttl_ms == 10_000
        assert found.checksum == (77 if bench.release.object_meta else None)
        assert bench("ExistKey", key, T, literal=literal) is True
    assert bench("ExistKey", b"no", T) is False
    assert bench("GetReplicaList", b"no", T) == Failed(-704)
    assert bench("PutStart", CLIENT, b"two", 64, bench.config(), T) == Failed(-705)
    assert bench("PutEnd", CLIENT, bench.meta(b"no"), 4, T) == Failed(-704)
    assert bench("Remove", b"two", False, T) == Failed(-706)
    assert bench("Remove", b"two", True, T) is None
    assert bench("Remove", b"two", True, T) == Failed(-704)
    assert bench("BatchRemove", [b"three", b"two"], True, T) == [None, Failed(-704)]


@pytest.mark.parametrize("count", [0, 1, 7, 255, 256, 300])
@pytest.mark.parametrize("verb", ["Put", "Upsert"])
def test_many_objects(bench: Bench, count: int, verb: str) -> None:
    keys = [b"%s-%d" % (verb.encode(), number) for number in range(count)]
    sizes = [number + 1 for number in range(count)]
    started = bench(f"Batch{verb}Start", CLIENT, keys, sizes, bench.config(replica_num=2), T)
    assert [[each.place.buffer.size for each in replicas] for replicas in started] == [[size] * 2 for size in sizes]
    kind = () if verb == "Upsert" else (4,)
    assert bench(f"Batch{verb}End", CLIENT, [bench.meta(key) for key in keys], *kind, T) == [None] * count
    assert bench("BatchExistKey", [*keys, b"no"], T) == [True] * count + [False]
    found = bench("BatchGetReplicaList", [b"no", *keys], T)
    assert found[0] == Failed(-704)
    assert [len(each.replicas) for each in found[1:]] == [2] * count


def test_random_mixtures_of_hits_and_misses(bench: Bench) -> None:
    chance = random.Random(2)
    keys = [b"k%d" % number for number in range(60)]
    for key in keys[::2]:
        preferred = ["seg0"] if chance.random() < 0.8 else []
        put(bench, key, chance.choice((None, 5)), replica_num=chance.choice((1, 1, 2)), preferred_segments=preferred)
    for _ in range(100):
        wanted = chance.choices(keys, k=chance.choice((1, 9, 300)))
        found = bench("BatchGetReplicaList", wanted, T)
        assert [not isinstance(each, Failed) for each in found] == bench("BatchExistKey", wanted, T)
        single = [bench("GetReplicaList", key, T) for key in wanted[:9]]
        assert found[:9] == single


def test_every_function_has_a_handler(bench: Bench) -> None:
    assert {function.id for function in bench.release.functions.values()} <= set(bench.handlers)


class Tide(Outbox):
    """Nothing is durable until the test raises the level."""

    def __init__(self) -> None:
        super().__init__(FOREVER)
        self.lease_until_ms = FOREVER

    def rise(self, n: int) -> None:
        self.durable_n = self.acked_n = n
        for one in self.release(NOW_MS):
            one.owner.release(one)


class Talk:
    """A real socket to a bench: requests go out, the numbers of the answers come back in their order."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.server = Server(bench.serving, clock=ManualClock(NOW_MS))
        self.listener = self.server.serve(listen("127.0.0.1", 0), bench.handlers, bench.release)
        self.got: list[int] = []
        self._cutter = ResponseReader(1 << 20)

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(*self.listener.address)

    def ask(self, seq: int, name: str, *arguments: Any) -> None:
        function = self.bench.release.functions[name]
        assert function.request is not None
        value = arguments if len(arguments) > 1 else arguments[0]
        self._writer.write(request(seq, function.id, pack(function.request, value)))

    def ask_own(self, seq: int, message: Get) -> None:
        self._writer.write(request(seq, GET.id, GET.pack_request(message)))

    async def answered(self, count: int) -> list[int]:
        async with asyncio.timeout(60):
            while len(self.got) < count:
                self.got.extend(item.seq for item in self._cutter.feed(await self._reader.read(1 << 16)))
        return self.got

    def close(self) -> None:
        self._writer.close()
        self.server.close()


async def test_no_answer_leaves_before_what_it_shows_is_durable() -> None:
    """P1 on a real socket: puts, hits, misses, counts wait for their record; what shows nothing new does not."""
    tide = Tide()
    bench = Bench(RELEASES["0.3.13"], tide)
    talk = Talk(bench)
    await talk.open()
    n = bench.index.log.last_n
    tide.rise(n)
    talk.ask(1, "MountSegment", m.Segment(b"s" * 16, "s", 1 << 40, 1 << 20, "e:1", "tcp"), CLIENT)
    talk.ask(2, "PutStart", CLIENT, b"k", 10, m.ReplicateConfig(), T)
    talk.ask(3, "PutEnd", CLIENT, m.ObjectMeta(b"k"), 4, T)
    talk.ask(4, "ExistKey", b"k", T)
    talk.ask(5, "ExistKey", b"never was", T)
    talk.ask(6, "Remove", b"k", True, T)
    talk.ask(7, "ExistKey", b"k", T)
    talk.ask(8, "RemoveAll", False, T)
    assert await talk.answered(1) == [5]
    tide.rise(n + 2)
    assert await talk.answered(3) == [5, 1, 2]
    tide.rise(n + 3)
    assert await talk.answered(5) == [5, 1, 2, 3, 4]
    tide.rise(bench.index.log.last_n)
    assert sorted(await talk.answered(8)) == list(range(1, 9))
    talk.close()


async def test_readers_wait_for_an_owner_that_has_not_pinged_since_a_restart() -> None:
    """H9: no reader is sent to memory that may be empty; "not there" would be wrong too."""
    bench = Bench(RELEASES["0.3.13"])
    bench("MountSegment", m.Segment(b"s" * 16, "s", 1 << 40, 1 << 20, "e:1", "tcp"), CLIENT)
    put(bench, b"k")
    bench.index.owners.distrust()
    talk = Talk(bench)
    await talk.open()
    talk.ask(1, "GetReplicaList", b"k", T)
    talk.ask(2, "BatchGetReplicaList", [b"k"], T)
    talk.ask(3, "GetReplicaListByRegex", b"k", T)
    talk.ask_own(4, Get(T, [b"k"]))
    talk.ask(5, "ExistKey", b"no", T)
    assert await talk.answered(1) == [5]
    talk.ask(6, "Ping", CLIENT)
    assert sorted(await talk.answered(6)) == [1, 2, 3, 4, 5, 6]
    assert talk.got[:2] == [5, 6]
    talk.close()


async def test_writers_wait_while_no_owner_of_space_has_pinged() -> None:
    """H9: after a failover the answer was "no space", although the owner of memory only had not pinged yet."""
    bench = Bench(RELEASES["0.3.13"])
    bench("MountSegment", m.Segment(b"s" * 16, "s", 1 << 40, 1 << 20, "e:1", "tcp"), CLIENT)
    bench.index.owners.distrust()
    talk = Talk(bench)
    await talk.open()
    talk.ask(1, "PutStart", CLIENT, b"one", 64, bench.config(), T)
    talk.ask(2, "BatchPutStart", CLIENT, [b"two"], [64], bench.config(), T)
    talk.ask(3, "UpsertStart", CLIENT, b"three", 64, bench.config(), T)
    talk.ask(4, "ExistKey", b"no", T)
    assert await talk.answered(1) == [4]
    talk.ask(5, "Ping", CLIENT)
    assert sorted(await talk.answered(5)) == [1, 2, 3, 4, 5]
    assert [bench.index.catalog.lookup(T, key) is not None for key in (b"one", b"two", b"three")] == [True] * 3
    talk.close()


async def test_a_caller_that_removes_too_many_absent_keys_waits() -> None:
    """H12: each absent key costs a record; one caller's are bounded, the rest wait until those are durable."""
    tide = Tide()
    bench = Bench(RELEASES["0.3.13"], tide)
    talk = Talk(bench)
    await talk.open()
    key_bytes = 60_000
    keys = [b"%060000d" % number for number in range(3 * absent_removes_bytes_max // key_bytes)]
    talk.ask(1, "BatchRemove", keys, False, T)
    talk.ask(2, "Remove", b"%060000d" % 77_777, False, T)
    talk.ask(3, "ExistKey", b"another", T)
    waits, answers = 0, asyncio.create_task(talk.answered(3))
    while not answers.done():
        await asyncio.sleep(0.001)
        if tide.waiting:
            waits += 1
            bench.index.log.durable(bench.index.log.last_n)
            tide.rise(bench.index.log.last_n)
    assert sorted(await answers) == [1, 2, 3]
    assert waits >= 3
    assert bench.index.log.last_n >= len(keys) + 1
    talk.close()
