"""A client that speaks frames, for what gRPC's own clients never do."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

from hpack import Encoder
from tests.raw_frames import RawFrames

from leasehold.http2.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    SETTINGS,
    frame,
)
from leasehold.store.server.http2.connection import Connection
from leasehold.store.server.serve import StoreServer
from leasehold.testing.waiting import until

REQUEST = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/etcdserverpb.KV/Range"),
    (":authority", "store"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
    ("x-long", "ü" * 300),
]


class Raw(RawFrames):
    """A client that speaks frames."""

    @classmethod
    async def connect(cls, server: StoreServer, settings: bytes = b"") -> Raw:
        reader, writer = await asyncio.open_connection(*server.address.split(":"))
        before = len(http2_connections(server))
        writer.write(PREFACE + frame(SETTINGS, 0, 0, settings))
        await until(lambda: len(http2_connections(server)) > before)
        return cls(reader, writer)


def message(request: Any) -> bytes:
    """A request as gRPC frames it."""
    data: bytes = request.SerializeToString()
    return struct.pack(">BI", 0, len(data)) + data


def opening(path: str, stream: int, *headers: tuple[str, str], end: bool = False) -> bytes:
    """The headers of a call, with no table to keep: any number of them, in any order."""
    sent = [(name, path if name == ":path" else value) for name, value in REQUEST] + list(headers)
    flags = END_HEADERS | (END_STREAM if end else 0)
    return frame(HEADERS, flags, stream, Encoder().encode(sent, huffman=False))


def asking(path: str, stream: int, request: Any) -> bytes:
    """A whole call."""
    return opening(path, stream) + frame(DATA, END_STREAM, stream, message(request))


def http2_connections(server: StoreServer) -> list[Connection]:
    """The open connections that speak HTTP/2."""
    return [one for one in server._clients if isinstance(one, Connection)]
