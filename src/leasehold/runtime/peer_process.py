"""Find the process that has the other end of a loopback connection, in Linux' tables.

A loopback address proves little: a container's port forward, a sidecar proxy and sshd connect from there too, for
callers elsewhere. Their processes are outside this process's PID namespace, or have known names.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
import sys
from pathlib import Path

from msgspec import Struct

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


class PeerProcess(Struct, frozen=True):
    """The owner of a socket. `pid` is 0 if no process was found that has it."""

    uid: int
    pid: int = 0
    program: str = ""
    uid_is_visible: bool = False  # whether some process of this user is in our PID namespace

    @property
    def user(self) -> str:
        """The user's name, or `uid N`."""
        try:
            return pwd.getpwuid(self.uid).pw_name
        except KeyError:
            return f"uid {self.uid}"

    @property
    def is_here(self) -> bool:
        """Whether the process is one of this host (of this PID namespace).

        Processes of other users cannot be inspected, so for them the user must at least have a process here.
        """
        if self.pid:
            return True
        may_inspect = os.geteuid() in (0, self.uid)
        return self.uid_is_visible and not may_inspect


def peer_process(peer: tuple[str, int], own: tuple[str, int]) -> PeerProcess | None:
    """The owner of the connection `peer` -> `own`, both on this host. It reads /proc: call it in a thread."""
    found = _socket_of(peer, own)
    if found is None:
        return None
    uid, inode = found
    link, uid_is_visible = f"socket:[{inode}]", False
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            uid_is_visible = uid_is_visible or folder.stat().st_uid == uid
            if any(os.readlink(entry) == link for entry in os.scandir(folder / "fd")):
                return PeerProcess(uid, int(folder.name), (folder / "comm").read_text().strip(), True)
    return PeerProcess(uid, uid_is_visible=uid_is_visible)


def _socket_of(local: tuple[str, int], remote: tuple[str, int]) -> tuple[int, str] | None:
    """Owner and inode of the socket with these ends."""
    wanted = {(one, other) for one in _encoded(*local) for other in _encoded(*remote)}
    for table in _TABLES:
        with contextlib.suppress(OSError), table.open() as lines:
            next(lines, None)
            for line in lines:
                columns = line.split()
                if (columns[1], columns[2]) in wanted:
                    return int(columns[7]), columns[9]
    return None


def _encoded(host: str, port: int) -> list[str]:
    """The address as the tables have it; an IPv4 address also as it appears on an IPv6 socket."""
    host = host.partition("%")[0]
    if ":" in host:
        raws = [socket.inet_pton(socket.AF_INET6, host)]
        if host.lower().startswith("::ffff:"):
            raws.append(raws[0][12:])
    else:
        raws = [socket.inet_aton(host)]
        raws.append(bytes(10) + b"\xff\xff" + raws[0])
    return [f"{_words(raw)}:{port:04X}" for raw in raws]


def _words(raw: bytes) -> str:
    """Each group of four bytes in the order of this machine, in hexadecimal."""
    return "".join(f"{int.from_bytes(raw[i : i + 4], sys.byteorder):08X}" for i in range(0, len(raw), 4))
