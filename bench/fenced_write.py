"""A yardstick: one fenced transaction after the other on a blocking socket, as lean as a client can be.

Its latency is the smallest that any durable master could add to an answer on this etcd: nothing but the request, the
commit and the answer.
"""

from __future__ import annotations

import socket
import struct
import time
from types import TracebackType
from typing import Self

from leasehold.etcd import codec
from leasehold.etcd.pb import rpc_pb2
from leasehold.http2.frames import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    PREFACE,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
)
from leasehold.http2.header_codec import literal
from leasehold.journal.fenced_writer import FencedWriter, slot_key

VALUE = bytes(120)  # about the size of a batch with one record
WINDOW = 1 << 30
HEAD_BYTES = 9
GRPC_HEAD_BYTES = 5


class FencedWrites:
    """Writes slots of a journal that no node reads."""

    def __init__(self, endpoint: str) -> None:
        host, _, port = endpoint.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A large window, once: answers are never acknowledged.
        self._socket.sendall(PREFACE + frame(SETTINGS, 0, 0) + frame(WINDOW_UPDATE, 0, 0, WINDOW.to_bytes(4, "big")))
        self._received = bytearray()
        self._stream = 1
        self._slot = 0
        self._head = (
            b"\x83\x86"
            + literal(b":path", b"/etcdserverpb.KV/Txn")
            + literal(b":authority", endpoint.encode())
            + literal(b"content-type", b"application/grpc")
            + literal(b"te", b"trailers")
        )

    def measure(self, count: int) -> list[float]:
        """Seconds of each of `count` transactions."""
        return [self._one() for _ in range(count)]

    def _one(self) -> float:
        self._slot += 1
        # The leader key does not exist: its create revision is 0.
        txn = FencedWriter(b"yardstick/leader", 0).write(0, slot_key(b"yardstick/journal/", self._slot), VALUE)
        message = codec.txn_request(txn).SerializeToString()
        body = b"\0" + len(message).to_bytes(4, "big") + message
        stream = self._stream
        self._stream += 2
        request = frame(HEADERS, END_HEADERS, stream, self._head) + frame(DATA, END_STREAM, stream, body)
        start_s = time.perf_counter()
        self._socket.sendall(request)
        answer = self._answer(stream)
        took_s = time.perf_counter() - start_s
        if not rpc_pb2.TxnResponse.FromString(answer[GRPC_HEAD_BYTES:]).succeeded:
            raise RuntimeError("a transaction of the yardstick failed: its slot was not empty")
        return took_s

    def _answer(self, stream: int) -> bytes:
        """Read frames up to the trailers of `stream`; return its data."""
        answer = b""
        while True:
            kind, flags, number, payload = self._frame()
            if kind in (PING, SETTINGS) and not flags & ACK:
                self._socket.sendall(frame(kind, ACK, 0, payload if kind == PING else b""))
            elif number == stream and kind == DATA:
                answer += payload
            elif number == stream and flags & END_STREAM:
                return answer

    def _frame(self) -> tuple[int, int, int, bytes]:
        received = self._received
        self._fill(HEAD_BYTES)
        length_kind, flags, stream = struct.unpack_from(">IBI", received)
        end = HEAD_BYTES + (length_kind >> 8)
        self._fill(end)
        payload = bytes(received[HEAD_BYTES:end])
        del received[:end]
        return length_kind & 0xFF, flags, stream, payload

    def _fill(self, count: int) -> None:
        while len(self._received) < count:
            if not (more := self._socket.recv(65_536)):
                raise ConnectionError("etcd closed the connection of the yardstick")
            self._received += more

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
