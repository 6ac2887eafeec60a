"""What a guardian tells the worker that it starts: one document in a memory file, and the sockets by number."""

from __future__ import annotations

import mmap
import os
import struct

import msgspec
from msgspec import Struct

BEAT_PAGE_BYTES = mmap.PAGESIZE
_PAGE = struct.Struct("<QQ")  # beats; 1 while long work may be under way


class Listener(Struct, frozen=True):
    """A listening socket that the guardian owns and the worker inherits."""

    fd: int
    address: str  # host:port, as bound
    table: str = ""  # the wire release spoken here; "" is the newest
    cluster: str = ""  # the name under which clients of that release look for their master


class HoldsBoot(Struct, frozen=True):
    """Where the worker gives its guardian a second hold on its connections."""

    marks_fd: int
    channel_fd: int
    slots: int


class Boot(Struct, frozen=True):
    """Everything a worker needs to begin."""

    run: str
    guardian_pid: int
    settings: bytes  # NodeConfig as JSON: kept opaque here, so that this file needs no other
    rpc: tuple[Listener, ...]
    door: Listener
    admin: Listener
    beat_fd: int
    life_fd: int  # reading ends when the guardian has ended
    control_fd: int
    reaped: tuple[str, ...] = ()
    metadata: Listener | None = None  # the transfer engine's metadata server, if it is wanted
    holds: HoldsBoot | None = None  # None: connections end with the worker

    def fds(self) -> tuple[int, ...]:
        """Every descriptor that must stay open over the exec."""
        sockets = [*self.rpc, self.door, self.admin]
        if self.metadata is not None:
            sockets.append(self.metadata)
        holds = () if self.holds is None else (self.holds.marks_fd, self.holds.channel_fd)
        return (*(listener.fd for listener in sockets), self.beat_fd, self.life_fd, self.control_fd, *holds)


def write_boot(boot: Boot) -> int:
    """The document in an inheritable memory file; returns its descriptor."""
    fd = os.memfd_create("leasehold-boot", 0)
    os.write(fd, msgspec.json.encode(boot))
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def read_boot(fd: int) -> Boot:
    with os.fdopen(fd, "rb") as file:
        return msgspec.json.decode(file.read(), type=Boot)


class BeatPage:
    """A counter in memory that both processes see: a beat costs the worker one store, and no system call."""

    def __init__(self, fd: int) -> None:
        self._page = mmap.mmap(fd, BEAT_PAGE_BYTES)
        self._count, self._patient = self.read()

    @staticmethod
    def create() -> int:
        fd = os.memfd_create("leasehold-beat", 0)
        os.ftruncate(fd, BEAT_PAGE_BYTES)
        return fd

    def beat(self) -> None:
        self._count += 1
        self._write()

    def be_patient(self, patient: bool) -> None:
        """While loading or catching up a worker may be silent for long: nobody depends on it yet."""
        self._patient = patient
        self._write()

    def _write(self) -> None:
        _PAGE.pack_into(self._page, 0, self._count, self._patient)

    def read(self) -> tuple[int, bool]:
        """How often it has beaten, and whether patience is asked for."""
        count, patient = _PAGE.unpack_from(self._page, 0)
        return int(count), bool(patient)

    def close(self) -> None:
        self._page.close()
