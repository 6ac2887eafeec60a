"""A peer that has sent its last request and shuts down its sending side still gets every answer that is due.

Mooncake's master answers all of them (5,000 requests, then a shutdown: 5,000 answers), and then hangs up.
"""

from __future__ import annotations

import asyncio
import socket

from tests.wire.test_rpc import dial, serving
from tests.wire.test_server_bounds import HELD, Tide, answers_until_the_end, behind

from leasehold.testing.waiting import until
from leasehold.wire.frame import request


async def send_and_hang_up(sock: socket.socket, *sent: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(sock, b"".join(sent))
    sock.shutdown(socket.SHUT_WR)


async def test_answers_that_are_not_ready_yet_are_waited_for() -> None:
    gate = Tide()
    async with behind(gate) as server:
        sock = await dial(server)
        half = request(9, HELD.id, b"never whole")[:-3]
        await send_and_hang_up(sock, *(request(seq, HELD.id, b"") for seq in range(3)), half)
        await until(lambda: gate.waiting == 3)
        await asyncio.sleep(0.05)  # its end is seen as well
        assert len(server.connections) == 1
        gate.rise()
        assert sorted(answer.seq for answer in await answers_until_the_end(sock)) == [0, 1, 2]
        await until(lambda: not server.connections)
        assert server.buffered_bytes == 0
        sock.close()


async def test_answers_that_do_not_fit_into_the_socket_are_sent_to_the_last_byte() -> None:
    async with serving() as (server, channel):
        channel.close()
        sock = await dial(server)
        await send_and_hang_up(sock, *(request(seq, 0xBAD, b"") for seq in range(60_000)))
        assert len(await answers_until_the_end(sock)) == 60_000
        sock.close()


async def test_a_dead_peer_is_forgotten() -> None:
    gate = Tide()
    async with behind(gate) as server:
        sock = await dial(server)
        await asyncio.get_running_loop().sock_sendall(sock, b"".join(request(seq, HELD.id, b"") for seq in range(3)))
        await until(lambda: gate.waiting == 3)
        sock.close()
        gate.rise()
        await until(lambda: not server.connections)
        assert server.buffered_bytes == 0
