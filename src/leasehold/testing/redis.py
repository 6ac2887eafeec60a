"""A real Redis for tests, with its faults as methods."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

from leasehold.testing.ports import free_ports
from leasehold.testing.process import MissingServer, ServerProcess


class RedisProcess(ServerProcess):
    """`redis-server` on its own loopback port, without persistence."""

    def __init__(self, folder: Path) -> None:
        binary = shutil.which("redis-server")
        if binary is None:
            raise MissingServer("no redis-server: run scripts/system-deps as root")
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_ports(1)[0]
        command = [binary, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
        super().__init__("redis", command, log_path=folder / "redis.log", probe=self._answers)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as sock:
                sock.sendall(b"PING\r\n")
                return sock.recv(16).startswith(b"+PONG")
        except OSError:
            return False
