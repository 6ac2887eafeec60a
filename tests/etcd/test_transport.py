"""The client's half of HTTP/2, where servers of today seldom go: small windows, farewells, resets, silence, garbage."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

import pytest
import uvloop
from hpack import Encoder
from tests.etcd.raw_server import Peer, RawServer, connected
from tests.raw_frames import WAIT_S

import leasehold
from leasehold.base.errors import InvalidArgument, Unavailable, UnknownOutcome
from leasehold.coord.url import ConnectOptions
from leasehold.etcd.endpoints import Endpoint
from leasehold.etcd.errors import Verdict, meaning
from leasehold.etcd.pb import rpc_pb2
from leasehold.etcd.transport import channel
from leasehold.etcd.transport import liveness as life
from leasehold.etcd.transport.call import UNREAD_BYTES_MAX, WINDOW_BYTES
from leasehold.etcd.transport.connection import BANDWIDTH_PING
from leasehold.etcd.transport.failures import RpcFailed
from leasehold.etcd.transport.send_queue import LATE_PARTS_MAX
from leasehold.etcd.transport.tls import tls_context
from leasehold.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    REFUSED_STREAM,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
)
from leasehold.mvcc.errors import Code
from leasehold.testing.certificates import CertificateAuthority
from leasehold.testing.etcd import EtcdCluster, etcd_binary

ANSWER = rpc_pb2.RangeResponse(count=7)
CANCEL = struct.pack(">I", 8)


def asking(endpoint: Endpoint, name: str = "Range", timeout_s: float = 20.0) -> asyncio.Task[rpc_pb2.RangeResponse]:
    request = rpc_pb2.RangeRequest(key=b"k") if name == "Range" else rpc_pb2.TxnRequest()
    return asyncio.create_task(endpoint.unary[name](request, timeout=timeout_s))


async def failure_of(call: asyncio.Task[rpc_pb2.RangeResponse]) -> RpcFailed:
    with pytest.raises(RpcFailed) as failed:
        await call
    return failed.value


# --- a call ---


async def test_a_request_is_as_grpc_has_it() -> None:
    async with connected() as (_, peer, endpoint):
        method = endpoint.unary["Range"]
        metadata = (("token", "s3cret"),)
        call = asyncio.create_task(method(rpc_pb2.RangeRequest(key=b"k"), timeout=1.5, metadata=metadata))
        _, stream, block = await peer.until(HEADERS)
        headers = dict(peer.headers.read(block))
        assert headers == {
            b":method": b"POST",
            b":scheme": b"http",
            b":path": b"/etcdserverpb.KV/Range",
            b":authority": endpoint.address.encode(),
            b"content-type": b"application/grpc",
            b"te": b"trailers",
            b"user-agent": b"leasehold",
            b"grpc-timeout": b"1500m",
            b"token": b"s3cret",
        }
        assert b"\x10\x05token" in block  # in the form that no proxy may keep
        flags, _, data = await peer.until(DATA)
        assert flags & END_STREAM
        assert rpc_pb2.RangeRequest.FromString(data[5:]).key == b"k"
        peer.write(peer.answer(stream, ANSWER))
        assert (await call).count == 7


async def test_an_answer_in_pieces_and_with_padding() -> None:
    async with connected() as (_, peer, endpoint):
        call = asking(endpoint)
        stream, _ = await peer.request()
        data = b"\0" + struct.pack(">I", ANSWER.ByteSize()) + ANSWER.SerializeToString()
        block = Encoder().encode([(":status", "200"), ("content-type", "application/grpc"), ("x", "y" * 50)])
        peer.write(
            frame(HEADERS, PADDED, stream, bytes((4,)) + block[:5] + bytes(4)),
            frame(CONTINUATION, 0, stream, block[5:9]),
            frame(CONTINUATION, END_HEADERS, stream, block[9:]),
            frame(DATA, PADDED, stream, bytes((3,)) + data[:2] + bytes(3)),
            frame(DATA, 0, stream, data[2:]),
            frame(0xFA, 0, stream, b"an unknown kind of frame"),
            peer.head(stream, ("grpc-status", "0"), end=True),
        )
        assert (await call).count == 7


async def test_a_refusal_keeps_its_code_and_its_words() -> None:
    async with connected() as (_, peer, endpoint):
        call = asking(endpoint)
        stream, _ = await peer.request()
        text = "100%25 %C3%A4: etcdserver: no space"
        peer.write(peer.head(stream, (":status", "200"), ("grpc-status", "8"), ("grpc-message", text), end=True))
        failure = await failure_of(call)
        assert (failure.code, failure.message) == (Code.RESOURCE_EXHAUSTED, "100% ä: etcdserver: no space")


@pytest.mark.parametrize("data", [b"", b"\0\0\0\0\5abc", b"\1\0\0\0\0", b"\0\0\0\0\2\xff\xff"])
async def test_a_malformed_answer_leaves_the_outcome_unknown(data: bytes) -> None:
    async with connected() as (_, peer, endpoint):
        call = asking(endpoint)
        stream, _ = await peer.request()
        peer.write(
            peer.head(stream, (":status", "200")),
            frame(DATA, 0, stream, data),
            peer.head(stream, ("grpc-status", "0"), end=True),
        )
        assert meaning(await failure_of(call)).verdict is Verdict.UNKNOWN


async def test_a_call_out_of_time_is_taken_back() -> None:
    async with connected() as (_, peer, endpoint):
        failure = asyncio.create_task(failure_of(asking(endpoint, timeout_s=0.05)))
        stream, _ = await peer.request()
        assert (await failure).code is Code.DEADLINE_EXCEEDED
        assert await peer.until(RST_STREAM) == (0, stream, CANCEL)
        peer.write(peer.answer(stream, ANSWER))  # too late, and no harm
        again = asking(endpoint)
        peer.write(peer.answer((await peer.request())[0], ANSWER))
        assert (await again).count == 7


async def test_a_call_without_a_waiting_caller_is_cancelled() -> None:
    async with connected() as (_, peer, endpoint):
        call = asking(endpoint)
        stream, _ = await peer.request()
        call.cancel()
        assert await peer.until(RST_STREAM) == (0, stream, CANCEL)
        with pytest.raises(asyncio.CancelledError):
            await call


async def test_a_read_only_transaction_is_not_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "LAST_ANSWERS_S", 10 * WAIT_S)
    async with connected() as (_, peer, endpoint):
        cancelled, late = asking(endpoint, "ReadTxn"), asking(endpoint, "ReadTxn", timeout_s=0.05)
        (first, headers), (second, _) = await peer.request(), await peer.request()
        assert headers[b"grpc-timeout"] == b"30000m"
        cancelled.cancel()
        assert (await failure_of(late)).code is Code.DEADLINE_EXCEEDED
        plain = asking(endpoint)
        third, _ = await peer.request()  # and no reset before it
        closing = asyncio.create_task(endpoint.close())
        peer.write(peer.answer(third, ANSWER))
        assert (await plain).count == 7
        assert not closing.done()  # the two are given a moment
        peer.write(peer.answer(first, rpc_pb2.TxnResponse()), peer.answer(second, rpc_pb2.TxnResponse()))
        await asyncio.wait_for(closing, WAIT_S)  # when it has them, and not after its moment
        assert await peer.closed()


# --- windows and numbers ---


async def test_requests_keep_to_the_servers_windows() -> None:
    """Of the call, of the connection, and of a frame; and to windows that shrink meanwhile."""
    async with connected(struct.pack(">HIHI", 4, 1_000, 5, 16_384)) as (_, peer, endpoint):
        value = bytes(range(256)) * 1_000
        put = asyncio.create_task(endpoint.unary["Put"](rpc_pb2.PutRequest(key=b"k", value=value), timeout=20))
        stream, _ = await peer.request()
        flags, _, data = await peer.until(DATA)
        assert (len(data), flags) == (1_000, 0)
        peer.write(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 500)))  # 500 less than nothing
        peer.write(frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", 600)))
        got = data
        flags, _, data = await peer.until(DATA)
        assert len(data) == 100
        got += data
        peer.write(frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", 1 << 20)))
        while len(got) < 65_535:
            flags, _, data = await peer.until(DATA)
            assert len(data) <= 16_384
            got += data
        assert len(got) == 65_535  # all that the connection takes
        peer.write(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 20)))
        while not flags & END_STREAM:
            flags, _, data = await peer.until(DATA)
            got += data
        assert rpc_pb2.PutRequest.FromString(got[5:]).value == value
        peer.write(peer.answer(stream, rpc_pb2.PutResponse()))
        await put


async def test_what_was_answered_before_it_was_sent_is_not_sent() -> None:
    async with connected() as (_, peer, endpoint):
        large = rpc_pb2.PutRequest(key=b"k", value=bytes(1 << 20))
        put = asyncio.create_task(endpoint.unary["Put"](large, timeout=20))
        stream, _ = await peer.request()
        peer.write(peer.head(stream, (":status", "200"), ("grpc-status", "8"), ("grpc-message", "large"), end=True))
        assert (await failure_of(put)).code is Code.RESOURCE_EXHAUSTED
        assert await peer.until(RST_STREAM) == (0, stream, CANCEL)


async def test_no_more_calls_than_the_server_takes() -> None:
    async with connected(struct.pack(">HI", 3, 2)) as (_, peer, endpoint):
        calls = [asking(endpoint) for _ in range(5)]
        gives_up = asking(endpoint, timeout_s=0.05)
        first, second = (await peer.request())[0], (await peer.request())[0]
        assert (await failure_of(gives_up)).code is Code.DEADLINE_EXCEEDED
        peer.write(peer.answer(first, ANSWER))
        third, _ = await peer.request()
        calls[1].cancel()
        assert await peer.until(RST_STREAM) == (0, second, CANCEL)
        fourth, _ = await peer.request()
        peer.write(frame(RST_STREAM, 0, third, struct.pack(">I", 2)))
        fifth, _ = await peer.request()
        peer.write(peer.answer(fourth, ANSWER), peer.answer(fifth, ANSWER))
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [getattr(answer, "count", None) for answer in answers] == [7, None, None, 7, 7]


async def test_a_token_longer_than_a_frame() -> None:
    async with connected() as (_, peer, endpoint):
        method, token = endpoint.unary["Range"], "x" * 40_000
        call = asyncio.create_task(method(rpc_pb2.RangeRequest(), timeout=20, metadata=(("token", token),)))
        flags, stream, block = await peer.until(HEADERS)
        while not flags & END_HEADERS:
            flags, _, more = await peer.until(CONTINUATION)
            block += more
        assert dict(peer.headers.read(block))[b"token"] == token.encode()
        assert (await peer.until(DATA))[0] & END_STREAM
        peer.write(peer.answer(stream, ANSWER))
        assert (await call).count == 7


async def reconnected(server: RawServer, endpoint: Endpoint) -> Peer:
    """The other side of the next connection, open."""
    connecting = asyncio.create_task(endpoint.ready(20, insist=False))
    other = await server.peer()
    await other.greet()
    assert await connecting
    return other


async def test_numbers_that_run_out_take_a_new_connection() -> None:
    async with connected() as (server, peer, endpoint):
        assert endpoint.channel.connection is not None
        endpoint.channel.connection._next_stream = (1 << 31) - 1
        last = asking(endpoint)
        stream, _ = await peer.request()
        assert stream == (1 << 31) - 1
        assert endpoint.channel.connection is None
        await reconnected(server, endpoint)
        peer.write(peer.answer(stream, ANSWER))
        assert (await last).count == 7
        assert await peer.closed()


async def test_who_does_not_read_a_stream_is_not_sent_more() -> None:
    async with connected() as (_, peer, endpoint):
        stream = endpoint.streams["Watch"]()
        number, _ = await peer.request()
        peer.write(peer.head(number, (":status", "200")))
        message = rpc_pb2.WatchResponse(cancel_reason="x" * 10_000).SerializeToString()
        data = b"\0" + struct.pack(">I", len(message)) + message
        count = UNREAD_BYTES_MAX // len(data) + 5
        for _ in range(count):
            peer.write(frame(DATA, 0, number, data))
        granted = 0
        peer.write(frame(PING, 0, 0, bytes(8)))
        while (got := await peer.frame())[0] != PING:
            granted += struct.unpack(">I", got[3])[0] if got[0] == WINDOW_UPDATE and got[2] == number else 0
        assert granted < UNREAD_BYTES_MAX
        for _ in range(count):
            assert len((await stream.read()).cancel_reason) == 10_000
        _, of_stream, payload = await peer.until(WINDOW_UPDATE)
        assert of_stream == number
        assert struct.unpack(">I", payload)[0] > len(data)
        stream.cancel()


async def test_a_message_larger_than_the_window(etcd: EtcdCluster) -> None:
    """In pieces, as real servers send it; and of a real one, an answer of 12 MB."""
    async with connected() as (_, peer, endpoint):
        stream = endpoint.streams["Watch"]()
        number, _ = await peer.request()
        peer.write(peer.head(number, (":status", "200")))
        message = rpc_pb2.WatchResponse(cancel_reason="x" * (WINDOW_BYTES * 2)).SerializeToString()
        reading = asyncio.create_task(stream.read())
        data, window = b"\0" + struct.pack(">I", len(message)) + message, WINDOW_BYTES
        while data:
            while window < 16_384:
                _, of_stream, payload = await peer.until(WINDOW_UPDATE)
                window += struct.unpack(">I", payload)[0] if of_stream == number else 0
            peer.write(frame(DATA, 0, number, data[:16_384]))
            data, window = data[16_384:], window - 16_384
        assert len((await reading).cancel_reason) == WINDOW_BYTES * 2
        stream.cancel()
    async with await leasehold.connect(etcd.url) as client:
        for each in range(12):
            await client.put(b"large/%d" % each, bytes(1_000_000))
        assert sum(len(kv.value) for kv in (await client.get(b"large/", b"large0")).kvs) == 12_000_000
        await client.delete(b"large/", b"large0")


# --- the end of a connection ---


async def test_goaway_shows_which_calls_were_not_done() -> None:
    """Running calls are answered on the old connection, unstarted ones were not done, new calls use another."""
    async with connected() as (server, peer, endpoint):
        begun, not_begun = asking(endpoint), asking(endpoint)
        first, _ = await peer.request()
        await peer.request()
        peer.write(frame(GOAWAY, 0, 0, struct.pack(">II", first, 0)))
        assert meaning(await failure_of(not_begun)).verdict is Verdict.NOT_DONE
        assert endpoint.channel.connection is None
        other = await reconnected(server, endpoint)
        peer.write(peer.answer(first, ANSWER))
        assert (await begun).count == 7
        assert await peer.closed()
        again = asking(endpoint)
        other.write(other.answer((await other.request())[0], ANSWER))
        assert (await again).count == 7


async def test_a_refused_call_was_not_done_and_a_broken_one_may_be() -> None:
    async with connected() as (_, peer, endpoint):
        for code, verdict in ((REFUSED_STREAM, Verdict.NOT_DONE), (2, Verdict.UNKNOWN)):
            call = asking(endpoint)
            stream, _ = await peer.request()
            peer.write(frame(RST_STREAM, 0, stream, struct.pack(">I", code)))
            assert meaning(await failure_of(call)).verdict is verdict
        call = asking(endpoint)
        await peer.request()
        peer.writer.close()
        assert meaning(await failure_of(call)).verdict is Verdict.UNKNOWN


async def test_a_bandwidth_ping_is_answered_later_than_the_next_request() -> None:
    """Answered with the request, the server would send the next one with its answer, for every commit."""
    async with connected() as (_, peer, endpoint):
        peer.write(frame(PING, 0, 0, BANDWIDTH_PING))
        peer.write(frame(PING, 0, 0, bytes(8)))
        assert (await peer.until(PING))[2] == bytes(8)
        call = asking(endpoint)
        stream, _ = await peer.request()
        peer.write(peer.answer(stream, ANSWER))
        assert (await call).count == 7
        assert await peer.until(PING) == (ACK, 0, BANDWIDTH_PING)


async def test_many_bandwidth_pings_are_not_kept() -> None:
    async with connected() as (_, peer, _):
        for _ in range(LATE_PARTS_MAX + 1):
            peer.write(frame(PING, 0, 0, BANDWIDTH_PING))
        for _ in range(LATE_PARTS_MAX + 1):
            assert await peer.until(PING) == (ACK, 0, BANDWIDTH_PING)


async def test_a_silent_server_is_pinged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(life, "PING_AFTER_S", 0.05)
    monkeypatch.setattr(life, "PING_ANSWER_S", 2.0)
    async with connected() as (_, peer, endpoint):
        call = asking(endpoint)
        flags, _, payload = await peer.until(PING)
        peer.write(frame(PING, flags | ACK, 0, payload))
        monkeypatch.setattr(life, "PING_ANSWER_S", 0.1)  # of the next one, which is not answered
        await peer.until(PING)  # a second ping: the connection was not given up
        assert "answer a ping" in (await failure_of(call)).message
        assert endpoint.channel.connection is None


@pytest.mark.parametrize(
    "garbage",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        frame(PING, 0, 0, bytes(8)),  # before its settings
        frame(SETTINGS, 0, 0) + frame(PING, 0, 0, b"1"),
        frame(SETTINGS, 0, 0) + frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"),
        frame(SETTINGS, 0, 0) + frame(HEADERS, 0, 1, b"\x88") + frame(PING, 0, 0, bytes(8)),
        frame(SETTINGS, 0, 0) + frame(CONTINUATION, END_HEADERS, 1, b"\x88"),
        frame(SETTINGS, 0, 0) + frame(5, 0, 1, bytes(8)),  # a push
        frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 1 << 31)),
        frame(SETTINGS, 0, 0) + struct.pack(">IBI", (2 << 20) << 8, 0, 1),
        frame(SETTINGS, 0, 0) + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", (1 << 31) - 1)),
        frame(SETTINGS, 0, 0) + frame(GOAWAY, 0, 0, b"bye"),
    ],
)
async def test_who_does_not_speak_http2_is_left(garbage: bytes) -> None:
    async with RawServer.run() as server:
        endpoint = Endpoint(server.address, None)
        connecting = asyncio.create_task(endpoint.ready(20, insist=False))
        peer: Peer = await server.peer()
        peer.writer.write(garbage)
        if await connecting:  # for a moment
            call = asking(endpoint)
            with pytest.raises(RpcFailed):
                await call
        assert await peer.closed()
        assert endpoint.channel.connection is None
        await endpoint.close()
        peer.writer.close()


async def test_a_server_that_accepts_and_says_nothing_is_no_connection() -> None:
    """A frozen server does that: a call that was never sent has a known outcome."""
    async with RawServer.run() as server:
        url = f"etcd://{server.address}"
        async with await leasehold.connect(url, timeout_s=0.3) as client:
            with pytest.raises(Unavailable):
                await client.put(b"k", b"v")


async def test_a_write_on_a_connection_that_breaks_is_unknown() -> None:
    async with RawServer.run() as server, await leasehold.connect(f"etcd://{server.address}") as client:
        writing = asyncio.create_task(client.put(b"k", b"v"))
        peer = await server.peer()
        await peer.greet()
        await peer.request()
        peer.writer.close()
        with pytest.raises(UnknownOutcome):
            await writing


async def test_a_write_that_a_server_did_not_begin_is_repeated() -> None:
    async with RawServer.run() as server, await leasehold.connect(f"etcd://{server.address}") as client:
        writing = asyncio.create_task(client.put(b"k", b"v"))
        leaving = await server.peer()
        await leaving.greet()
        await leaving.request()
        leaving.write(frame(GOAWAY, 0, 0, struct.pack(">II", 0, 0)))
        peer = await server.peer()
        await peer.greet()
        peer.write(peer.answer((await peer.request())[0], rpc_pb2.PutResponse()))
        await writing


async def test_a_client_that_is_closed_ends_what_is_under_way() -> None:
    async with connected() as (_, peer, endpoint):
        call = asking(endpoint)
        stream = endpoint.streams["Watch"]()
        reading = asyncio.create_task(stream.read())
        await peer.request()
        await endpoint.close()
        assert meaning(await failure_of(call)).verdict is Verdict.UNKNOWN
        with pytest.raises(RpcFailed, match="closed"):
            await reading
        stream.send(rpc_pb2.WatchRequest())  # nowhere
        assert await peer.closed()


async def test_a_stream_that_sends_garbage_is_cancelled() -> None:
    async with connected() as (_, peer, endpoint):
        stream, received = endpoint.streams["Watch"](), list[rpc_pb2.WatchResponse]()
        delivering = asyncio.create_task(stream.deliver(received.append))
        number, _ = await peer.request()
        good = rpc_pb2.WatchResponse(watch_id=5).SerializeToString()
        data = b"".join(b"\0" + struct.pack(">I", len(each)) + each for each in (good, good, b"\xff\xff", good))
        peer.write(peer.head(number, (":status", "200")), frame(DATA, 0, number, data[:9]))
        await asyncio.sleep(0.01)
        peer.write(frame(DATA, 0, number, data[9:]))
        with pytest.raises(RpcFailed, match="cannot be decoded"):
            await delivering
        assert [message.watch_id for message in received] == [5, 5]
        assert await peer.until(RST_STREAM) == (0, number, CANCEL)


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_both_loops_with_and_without_tls(factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """A call, a large one, a watch, and a call after a restart of the server."""

    async def work(cluster: EtcdCluster, ca: bytes | None) -> None:
        async with await leasehold.connect(cluster.url, ca=ca) as client:
            stream = client.watch(b"k")
            await stream.ready()
            await client.put(b"k", bytes(1_000_000))
            assert len((await anext(aiter(stream))).events[0].kv.value) == 1_000_000
            await asyncio.to_thread(cluster.nodes[0].restart)
            await client.get(b"k", timeout_s=20)

    authority = CertificateAuthority()
    for trusted in (None, authority):
        binary = etcd_binary(survives_kills=True)
        with (
            EtcdCluster(1, authority=trusted, binary=binary) as cluster,
            asyncio.Runner(loop_factory=factory) as runner,
        ):
            runner.run(work(cluster, None if trusted is None else authority.ca_pem))


def test_certificates_that_are_none_are_refused() -> None:
    for options in (ConnectOptions(ca=b"nonsense"), ConnectOptions(cert=b"nonsense", key=b"nonsense")):
        with pytest.raises(InvalidArgument, match="PEM"):
            tls_context(options)
