"""The boot document that a guardian passes to its worker in a memory file: settings, and inherited descriptors."""

from __future__ import annotations

import mmap
import os
import struct

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

BEAT_PAGE_BYTES = mmap.PAGESIZE
_PAGE = struct.Struct("<QQ")  # written by the worker: heartbeats; 1 while long work may be in progress
_COUNTS = struct.Struct("<QQQQQ")  # written by the guardian: `GuardianCounts`
_COUNTS_AT = 1024


class Listener(Struct, frozen=True):
    """A listening socket that the guardian owns and the worker inherits."""

    fd: int
    address: str  # host:port, as bound
    table: str = ""  # wire release of this port; "" is the newest
    cluster: str = ""  # cluster name under which clients of that release look up their master


class HandoffBoot(Struct, frozen=True):
    """How the worker shares its connections with its guardian."""

    checkpoints_fd: int
    channel_fd: int
    slots: int


class Boot(Struct, frozen=True):
    """Everything that a worker needs to start."""

    run: str
    guardian_pid: int
    settings: bytes  # NodeConfig as JSON; opaque, so that this module imports no other
    rpc: tuple[Listener, ...]
    forward: Listener
    admin: Listener
    heartbeat_fd: int
    life_fd: int  # end of file when the guardian has died
    control_fd: int
    reaped: tuple[str, ...] = ()
    rpc_tls: Listener | None = None  # the port of Leasehold's own clients with TLS, if configured
    metadata: Listener | None = None  # the transfer engine's metadata server, if configured
    handoff: HandoffBoot | None = None  # None: connections end with the worker

    def fds(self) -> tuple[int, ...]:
        """Every descriptor that the worker inherits."""
        sockets = [*self.rpc, self.forward, self.admin]
        sockets += [listener for listener in (self.rpc_tls, self.metadata) if listener is not None]
        handoff = () if self.handoff is None else (self.handoff.checkpoints_fd, self.handoff.channel_fd)
        return (*(listener.fd for listener in sockets), self.heartbeat_fd, self.life_fd, self.control_fd, *handoff)


def write_boot(boot: Boot) -> int:
    """Write the document to an inheritable memory file; returns its descriptor."""
    fd = os.memfd_create("leasehold-boot", 0)
    os.write(fd, msgspec.json.encode(boot))
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def read_boot(fd: int) -> Boot:
    with os.fdopen(fd, "rb") as file:
        return msgspec.json.decode(file.read(), type=Boot)


class GuardianCounts(Struct, frozen=True):
    """The counters of a guardian, for the metrics of its worker. Totals since the guardian started."""

    worker_restarts: int = 0
    held: int = 0  # client connections that waited for a primary
    forwarded: int = 0  # client connections forwarded to a primary
    refused: int = 0  # reset: too many were held, or no primary was found in time
    waiting: int = 0  # at this moment: connections with a request that wait for a primary


class HeartbeatPage:
    """A counter in shared memory: a heartbeat costs the worker one memory write, and no system call."""

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
        """Set whether the guardian should wait longer: a worker that loads or catches up may miss heartbeats."""
        self._patient = patient
        self._write()

    def _write(self) -> None:
        _PAGE.pack_into(self._page, 0, self._count, self._patient)

    def publish(self, counts: GuardianCounts) -> None:
        """Called by the guardian, about ten times a second."""
        _COUNTS.pack_into(self._page, _COUNTS_AT, *astuple(counts))

    def guardian_counts(self) -> GuardianCounts:
        return GuardianCounts(*_COUNTS.unpack_from(self._page, _COUNTS_AT))

    def read(self) -> tuple[int, bool]:
        """The number of heartbeats, and whether the guardian should wait longer."""
        count, patient = _PAGE.unpack_from(self._page, 0)
        return int(count), bool(patient)

    def close(self) -> None:
        self._page.close()
