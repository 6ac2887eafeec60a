"""The client's half of HTTP/2 against servers that are broken, frozen or hostile: what they cannot make it do."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Any

import pytest
import uvloop
from hpack import Encoder
from tests.etcd.raw_server import Peer, RawServer, connected
from tests.etcd.test_transport import ANSWER, CANCEL, asking, failure_of

import leasehold
from leasehold.base.errors import Unavailable, UnknownOutcome
from leasehold.etcd.endpoints import Endpoint
from leasehold.etcd.errors import Verdict, meaning
from leasehold.etcd.pb import rpc_pb2
from leasehold.etcd.transport.connection import CONNECTION_WINDOW_BYTES, Connection
from leasehold.etcd.transport.failures import RpcFailed
from leasehold.http2.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
)
from leasehold.http2.header_blocks import BlockReader
from leasehold.mvcc.errors import Code
from leasehold.testing.waiting import until

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]
WIDE = struct.pack(">HI", 4, (1 << 31) - 1)  # settings of a server that grants windows without bounds
WIDE_CONNECTION = frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", (1 << 31) - 1 - 65_535))


def on(loop_factory: Callable[[], asyncio.AbstractEventLoop], test: Callable[[], Any]) -> None:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(test())


def open_connection(endpoint: Endpoint) -> Connection:
    connection = endpoint.channel.connection
    assert connection is not None
    return connection


def large_put(endpoint: Endpoint, timeout_s: float, size_bytes: int = 1 << 20) -> asyncio.Task[Any]:
    request = rpc_pb2.PutRequest(key=b"k", value=bytes(size_bytes))
    return asyncio.create_task(endpoint.unary["Put"](request, timeout=timeout_s))


async def pinged(peer: Peer) -> list[tuple[int, int, int, bytes]]:
    """The client's frames until it has answered a ping: then it has processed everything before."""
    peer.write(frame(PING, 0, 0, b"and then"))
    seen = []
    while (got := await peer.frame())[3] != b"and then":
        seen.append(got)
    return seen


def granted(frames: list[tuple[int, int, int, bytes]], stream: int) -> int:
    return sum(struct.unpack(">I", got[3])[0] for got in frames if got[0] == WINDOW_UPDATE and got[2] == stream)


# --- what is certain ---


async def test_what_was_never_begun_is_certainly_not_done_and_leaves_nothing() -> None:
    """A server that takes no calls at all: they end in time, and neither they nor their requests are kept."""
    async with connected(struct.pack(">HI", 3, 0)) as (_, _, endpoint):
        late = [large_put(endpoint, 0.05) for _ in range(5)]
        cancelled = [large_put(endpoint, 20), asking(endpoint, "ReadTxn")]
        await asyncio.sleep(0)
        stream = endpoint.streams["Watch"]()
        for call in late:
            failure = await failure_of(call)
            assert (failure.code, meaning(failure).verdict) == (Code.DEADLINE_EXCEEDED, Verdict.NOT_DONE)
        for call in cancelled:
            call.cancel()
        await asyncio.gather(*cancelled, return_exceptions=True)
        stream.cancel()
        assert not open_connection(endpoint)._waiting


async def test_a_token_that_cannot_be_fetched_means_that_the_write_was_not_sent() -> None:
    """The write was not sent, whatever became of the question for a token."""
    async with (
        RawServer.run() as server,
        await leasehold.connect(f"etcd://{server.address}", user="u", password="p") as client,
    ):
        writing = asyncio.create_task(client.put(b"k", b"v"))
        lost = await server.peer()
        await lost.greet()
        _, headers = await lost.request()
        assert headers[b":path"] == b"/etcdserverpb.Auth/Authenticate"
        lost.writer.close()
        peer = await server.peer()
        await peer.greet()
        peer.write(peer.answer((await peer.request())[0], rpc_pb2.AuthenticateResponse(token="t")))
        stream, headers = await peer.request()
        assert (headers[b":path"], headers[b"token"]) == (b"/etcdserverpb.KV/Put", b"t")
        peer.write(peer.answer(stream, rpc_pb2.PutResponse()))
        await writing


@pytest.mark.parametrize("end", [frame(RST_STREAM, 0, 1, struct.pack(">I", 7)), frame(GOAWAY, 0, 0, bytes(8))])
async def test_who_has_begun_to_answer_has_seen_the_call(end: bytes) -> None:
    """A server that began to answer cannot claim later that it never saw the call."""
    async with connected() as (_, peer, endpoint):
        call = asking(endpoint)
        stream, _ = await peer.request()
        peer.write(peer.head(stream, (":status", "200")), end)
        assert meaning(await failure_of(call)).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (Code.UNAVAILABLE, "failed to connect to all addresses"),  # from a proxy: it may have sent the call before
        (Code.RESOURCE_EXHAUSTED, "grpc: trying to send message larger than max (2 vs. 1)"),  # the answer, that is
    ],
)
async def test_texts_that_do_not_tell_that_nothing_was_done(code: Code, text: str) -> None:
    async with RawServer.run() as server, await leasehold.connect(f"etcd://{server.address}") as client:
        writing = asyncio.create_task(client.put(b"k", b"v"))
        peer = await server.peer()
        await peer.greet()
        stream, _ = await peer.request()
        status = (("grpc-status", str(int(code))), ("grpc-message", text))
        peer.write(peer.head(stream, (":status", "200"), *status, end=True))
        with pytest.raises(UnknownOutcome, match=text[:20]):  # and not after a second attempt
            await writing


# --- no caller waits forever ---


async def test_a_stream_that_ends_in_the_middle_of_a_message_has_failed() -> None:
    async with connected() as (_, peer, endpoint):
        stream = endpoint.streams["Watch"]()
        number, _ = await peer.request()
        peer.write(
            peer.head(number, (":status", "200")),
            frame(DATA, 0, number, b"\0\0\0\0\0" + b"\0\0\0\0\5abc"),
            peer.head(number, ("grpc-status", "0"), end=True),
        )
        assert await stream.read() == rpc_pb2.WatchResponse()
        with pytest.raises(RpcFailed, match="in the middle"):
            await stream.read()


async def test_a_stream_that_its_server_ended_is_ended_here_too() -> None:
    """Otherwise it would count against the server's limit of calls forever."""
    async with connected() as (_, peer, endpoint):
        stream = endpoint.streams["Watch"]()
        number, _ = await peer.request()
        peer.write(peer.head(number, (":status", "200"), ("grpc-status", "0"), end=True))
        assert await stream.read() is None
        assert await peer.until(RST_STREAM) == (0, number, CANCEL)


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_a_mistake_of_our_own_ends_the_calls(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is raised where bytes come in: the loop ends the connection, and with it what waits."""

    async def run() -> None:
        async with connected() as (_, peer, endpoint):
            asyncio.get_running_loop().set_exception_handler(lambda *_: None)
            call, stream = asking(endpoint), endpoint.streams["Watch"]()
            await peer.request()
            monkeypatch.setattr(BlockReader, "take", _mistake)
            peer.write(peer.head(1, (":status", "200")))
            assert meaning(await failure_of(call)).verdict is Verdict.UNKNOWN
            with pytest.raises(RpcFailed):
                await stream.read()
            assert endpoint.channel.connection is None

    on(loop_factory, run)


def _mistake(*_: object) -> None:
    raise IndexError("a mistake")


async def test_a_close_that_is_cancelled_still_closes() -> None:
    async with connected() as (_, peer, endpoint):
        reading = asking(endpoint, "ReadTxn")
        await peer.request()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):  # it would give the read a second
                await endpoint.close()
        assert await peer.closed()
        await failure_of(reading)


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_a_connection_to_a_frozen_server_is_not_kept(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """Closed with something unwritten, a socket would stay for as long as the server does not read."""

    async def run() -> None:
        async with connected(WIDE) as (_, peer, endpoint):
            peer.write(WIDE_CONNECTION)
            await pinged(peer)
            connection = open_connection(endpoint)
            put = large_put(endpoint, 0.2, 32 << 20)
            await failure_of(put)
            assert connection._out.paused
            endpoint.renew()  # as is done with an endpoint that does not answer
            assert not connection.calls
            assert not connection.ended
            await until(lambda: connection.ended)

    on(loop_factory, run)


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "no-such-host.invalid"])
async def test_a_name_that_cannot_be_one_is_no_connection(host: str) -> None:
    """And not an error of Python's, nor a thousand attempts a second."""
    async with await leasehold.connect(f"etcd://{host}:2379", timeout_s=0.4) as client:
        with pytest.raises(Unavailable, match=r"no connection: \w+"):
            await client.get(b"k")
        assert client._endpoints.current.channel._failures < 5  # type: ignore[attr-defined]  # of this client only


# --- memory ---


@pytest.mark.parametrize("loop_factory", LOOPS)
@pytest.mark.parametrize("flood", [frame(PING, 0, 0, bytes(8)), frame(SETTINGS, 0, 0)], ids=["ping", "settings"])
def test_who_sends_and_does_not_read_is_left(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], flood: bytes
) -> None:
    async def run() -> None:
        async with connected() as (_, peer, endpoint):
            connection = open_connection(endpoint)
            sock = connection._out.transport.get_extra_info("socket")  # type: ignore[union-attr]  # it is open
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
            call = asking(endpoint)
            sent = 0
            try:
                while not connection.ended:
                    peer.write(flood * 4_000)
                    await peer.writer.drain()
                    sent += 4_000 * len(flood)
                    assert sent < 64 << 20
            except ConnectionError:
                pass
            assert "does not read" in (await failure_of(call)).message

    on(loop_factory, run)


async def test_requests_are_not_written_to_a_server_that_does_not_read() -> None:
    """Whatever windows it grants. Unstarted calls are known not to be done; the rest continue when it reads again."""
    async with connected(WIDE) as (_, peer, endpoint):
        peer.write(WIDE_CONNECTION)
        await pinged(peer)
        out = open_connection(endpoint)._out
        puts = [large_put(endpoint, 0.5, 8 << 20) for _ in range(10)]
        failures = [await failure_of(put) for put in puts]
        assert {failure.code for failure in failures} == {Code.DEADLINE_EXCEEDED}
        assert meaning(failures[0]).verdict is Verdict.UNKNOWN
        assert meaning(failures[-1]).verdict is Verdict.NOT_DONE
        assert out.transport is not None
        assert out.transport.get_write_buffer_size() < 4 << 20
        again = asking(endpoint)
        while True:  # it reads again
            stream, headers = await peer.request()
            if headers[b":path"] == b"/etcdserverpb.KV/Range":
                break
        peer.write(peer.answer(stream, ANSWER))
        assert (await again).count == 7


async def test_empty_messages_are_not_for_nothing() -> None:
    """A message of no bytes takes some of ours: who sends them without end has to wait for the reader as well."""
    async with connected() as (_, peer, endpoint):
        stream = endpoint.streams["Watch"]()
        number, _ = await peer.request()
        peer.write(peer.head(number, (":status", "200")))
        for _ in range(50):
            peer.write(frame(DATA, 0, number, bytes(5) * 3_000))
        assert granted(await pinged(peer), number) < 200_000
        for _ in range(150_000):
            assert await stream.read() == rpc_pb2.WatchResponse()
        assert granted(await pinged(peer), number) > 400_000
        stream.cancel()


async def test_frames_without_end_and_without_content() -> None:
    """Empty ones of an answer are not kept; those of a header block end the connection."""
    async with connected() as (_, peer, endpoint):
        call = asking(endpoint)
        number, _ = await peer.request()
        peer.write(peer.head(number, (":status", "200")), frame(DATA, 0, number) * 50_000)
        data = b"\0" + struct.pack(">I", ANSWER.ByteSize()) + ANSWER.SerializeToString()
        for byte in data:
            peer.write(frame(DATA, 0, number, bytes((byte,))), frame(DATA, 0, number) * 100)
        peer.write(peer.head(number, ("grpc-status", "0"), end=True))
        assert (await call).count == 7
        call = asking(endpoint)
        number, _ = await peer.request()
        peer.write(frame(HEADERS, 0, number, b"\x88"), frame(CONTINUATION, 0, number) * 2_000)
        assert "too long" in (await failure_of(call)).message
        assert await peer.closed()


async def test_a_header_bomb_ends_the_connection() -> None:
    async with connected() as (_, peer, endpoint):
        call = asking(endpoint)
        number, _ = await peer.request()
        block = Encoder().encode([("x", "y" * 3_000)])
        peer.write(frame(HEADERS, 0, number, block), frame(CONTINUATION, 0, number, b"\xbe" * 16_000) * 5)
        assert "too long" in (await failure_of(call)).message


# --- windows ---


async def test_answers_to_cancelled_calls_do_not_starve_the_connection() -> None:
    """10,000 calls are taken back, and answered nevertheless: the connection's window is opened for these, too."""
    async with connected() as (_, peer, endpoint):
        data, window = bytes(8 << 10), CONNECTION_WINDOW_BYTES
        for _ in range(100):
            calls = [asking(endpoint) for _ in range(100)]
            await asyncio.sleep(0)
            for call in calls:
                call.cancel()
            streams = [(await peer.request())[0] for _ in range(100)]
            for stream in streams:
                peer.write(peer.head(stream, (":status", "200")), frame(DATA, 0, stream, data))
            window += granted(await pinged(peer), 0) - 100 * len(data)
            assert window > CONNECTION_WINDOW_BYTES // 2
        assert not open_connection(endpoint).calls
        again = asking(endpoint)
        peer.write(peer.answer((await peer.request())[0], ANSWER))
        assert (await again).count == 7


async def test_padding_counts_in_the_windows() -> None:
    """A watch whose answers are mostly padding goes on."""
    async with connected() as (_, peer, endpoint):
        stream = endpoint.streams["Watch"]()
        number, _ = await peer.request()
        peer.write(peer.head(number, (":status", "200")))
        padded = frame(DATA, PADDED, number, b"\xff" + bytes(5) + bytes(255))
        for _ in range(1_000):
            peer.write(padded)
        for _ in range(1_000):
            await stream.read()
        assert granted(await pinged(peer), number) > 1_000 * 261 - 2 * 65_536
        stream.cancel()


# --- servers of another kind ---


async def test_a_server_with_habits_of_its_own() -> None:
    """Priorities, padding, pieces, unknown settings and frames, an early hint, table sizes, all together."""
    settings = struct.pack(">HIHIHIHIHI", 0x99, 7, 5, 1 << 24, 4, 70_000, 6, 1_000, 1, 0)
    async with connected(settings) as (_, peer, endpoint):
        encoder = Encoder()
        for table_bytes in (4_096, 0, 100, 4_096):
            call = asking(endpoint)
            number, _ = await peer.request()
            encoder.header_table_size = table_bytes
            hint = encoder.encode([(":status", "103"), ("link", "x")])
            head = encoder.encode([(":status", "200"), ("content-type", "application/grpc"), ("server", "other")])
            end = encoder.encode([("grpc-status", "0"), ("x-time", "12")])
            data = b"\0" + struct.pack(">I", ANSWER.ByteSize()) + ANSWER.SerializeToString()
            peer.write(
                frame(2, 0, number, bytes(5)),  # a priority
                frame(HEADERS, END_HEADERS, number, hint),
                frame(HEADERS, PADDED | PRIORITY, number, b"\2" + bytes(5) + head[:3] + bytes(2)),
                frame(CONTINUATION, 0, number),
                frame(CONTINUATION, END_HEADERS, number, head[3:]),
                frame(SETTINGS, 0, 0, struct.pack(">HI", 4, table_bytes)),
                frame(DATA, PADDED, number, b"\0" + data[:1]),
                frame(0xEE, 0xFF, number, b"grease"),
                frame(DATA, 0, number, data[1:]),
                frame(HEADERS, 1, number, end[:1]),
                frame(CONTINUATION, END_HEADERS, number, end[1:]),
                frame(RST_STREAM, 0, number, bytes(4)),
                frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 70_000)),
            )
            assert (await call).count == 7


async def test_bytes_that_come_one_by_one() -> None:
    async with connected() as (_, peer, endpoint):
        connection, call = open_connection(endpoint), asking(endpoint)
        number, _ = await peer.request()
        for byte in peer.answer(number, ANSWER) + frame(GOAWAY, 0, 0, struct.pack(">II", number, 0)):
            connection.data_received(bytes((byte,)))
        assert (await call).count == 7
        assert await peer.closed()
