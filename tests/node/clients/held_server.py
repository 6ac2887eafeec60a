"""A minimal worker: a wire server that shares its connections with its parent. `test_handoff_kills.py` kills it.

    python held_server.py LISTENING_FD CHECKPOINTS_FD CHANNEL_FD SLOTS

Function 1 answers immediately, 2 a moment later, 3 immediately with a large answer.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from functools import partial

import uvloop

from leasehold.node.boot import HandoffBoot
from leasehold.node.worker.handoff import ConnectionSharing
from leasehold.wire.answers import Answer, Later, Released
from leasehold.wire.connection import Connection
from leasehold.wire.frame import response
from leasehold.wire.server import Server

SHORT, LONG = Released(response(0, b"ok")), Released(response(0, bytes(300_000)))


def immediately(_: Connection, __: int, ___: bytes) -> Answer:
    return SHORT


def later(_: Connection, __: int, ___: bytes) -> Answer:
    return Later(lambda: SHORT, pause_s=0.001)


def at_length(_: Connection, __: int, ___: bytes) -> Answer:
    return LONG


async def main() -> None:
    listening, checkpoints, channel, slots = map(int, sys.argv[1:])
    server = Server()
    share = partial(ConnectionSharing(HandoffBoot(checkpoints, channel, slots)).hold, 0)
    server.serve(socket.socket(fileno=listening), {1: immediately, 2: later, 3: at_length}, share=share)
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main())
