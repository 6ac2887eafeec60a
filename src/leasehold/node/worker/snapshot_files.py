"""Snapshot files: written in parts on a thread, either complete or absent; the newest two are kept.

A file is `snapshot-NUMBER.lsnap`: the bytes from the machine, then a trailer with length and digest. It gets this
name only after fsync and after it was read back, so a file with this name is a complete snapshot.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, Final

import aiohttp
import structlog

from leasehold.base.limits import GIB
from leasehold.ha.effects import ReadSnapshot, WriteSnapshot
from leasehold.ha.events import NodeEvent, SnapshotFailed, SnapshotRead, SnapshotStored
from leasehold.node.access import PeerAccess
from leasehold.runtime.clock import wall_us
from leasehold.runtime.tasks import TaskSet

log = structlog.get_logger("leasehold.snapshots")

KEPT: Final = 2
SNAPSHOT_BYTES_MAX: Final = 16 * GIB
STREAM_TIMEOUT_S: Final = 600.0
READ_BACK_BYTES: Final = 1024 * 1024
_TRAILER: Final = struct.Struct("<8sQ16s")
_MAGIC: Final = b"LSNAPEND"


def seal(raw: bytes) -> bytes:
    """The trailer of a complete snapshot."""
    return _TRAILER.pack(_MAGIC, len(raw), hashlib.blake2b(raw, digest_size=16).digest())


def unseal(data: bytes) -> bytes | None:
    """The snapshot without its trailer, or None if it is incomplete or damaged."""
    raw = data[: -_TRAILER.size]
    return raw if sealed_length(data) == len(raw) and data[-_TRAILER.size :] == seal(raw) else None


def sealed_length(data: bytes) -> int | None:
    """The length that the trailer records; None if there is no trailer."""
    if len(data) < _TRAILER.size:
        return None
    magic, length, _ = _TRAILER.unpack_from(data, len(data) - _TRAILER.size)
    return int(length) if magic == _MAGIC else None


class SnapshotFiles:
    """Carries out the snapshot effects of one node. One thread does all file work, in order."""

    def __init__(
        self, folder: Path, tell: Callable[[NodeEvent], None], admin_of: Callable[[str], str], peers: PeerAccess
    ) -> None:
        """`tell` receives the result of each effect; `admin_of` returns the admin address of a node by name."""
        self._folder = folder
        self._peers = peers
        self._tell = tell
        self._admin_of = admin_of
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="snapshots")
        self._tasks = TaskSet()
        self._file: BinaryIO | None = None
        self._digest = hashlib.blake2b(digest_size=16)
        self._length = 0
        self._failed = -1  # the last snapshot that could not be written completely
        self.written = 0
        self.failures = 0  # snapshots that could not be written
        self.problem = ""  # why the last one could not be written; "" if it was
        self.written_wall_us = 0  # when the newest complete snapshot was written; 0: there is none
        folder.mkdir(parents=True, exist_ok=True)
        if names := self._names():
            with contextlib.suppress(OSError):
                self.written_wall_us = names[-1].stat().st_mtime_ns // 1_000
        for left in folder.glob("*.part"):  # incomplete, left behind by a crash
            left.unlink()

    def read(self, effect: ReadSnapshot) -> None:
        self._tasks.start(self._read(effect.peer))

    def write(self, effect: WriteSnapshot) -> None:
        self._tasks.start(self._write(effect))

    async def newest_file(self) -> bytes | None:
        """The newest complete snapshot file, for another node."""
        return await self._loop.run_in_executor(self._thread, self._newest_sealed)

    async def delete_all(self) -> int:
        """Delete every snapshot on disk: the state is to be copied from another node. Returns their number."""
        return await self._loop.run_in_executor(self._thread, self._delete_all)

    async def close(self) -> None:
        await self._tasks.close()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _read(self, peer: str) -> None:
        if peer:
            raw = await self._from_peer(peer)
        else:
            raw = await self._loop.run_in_executor(self._thread, self._newest_raw)
        self._tell(SnapshotRead(raw, peer))

    async def _from_peer(self, peer: str) -> bytes | None:
        admin = self._admin_of(peer)
        try:
            timeout = aiohttp.ClientTimeout(total=STREAM_TIMEOUT_S, connect=2.0, sock_read=10.0)
            async with (
                aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session,
                session.get(
                    self._peers.url(admin, "/api/snapshot"),
                    headers=self._peers.headers(),
                    allow_redirects=False,
                    **self._peers.tls_options(admin),
                ) as answer,
            ):
                if answer.status != 200 or (answer.content_length or 0) > SNAPSHOT_BYTES_MAX:
                    log.warning(
                        "a peer did not send a snapshot", peer=peer, status=answer.status, bytes=answer.content_length
                    )
                    return None
                data = bytearray()
                async for some in answer.content.iter_chunked(READ_BACK_BYTES):
                    data += some
                    if len(data) > SNAPSHOT_BYTES_MAX:  # the peer may have sent no length
                        log.warning("a peer's snapshot is too large: reading stopped", peer=peer, bytes=len(data))
                        return None
        except (aiohttp.ClientError, TimeoutError) as error:
            log.info("could not read a peer's snapshot", peer=peer, error=str(error))
            return None
        return unseal(bytes(data))

    async def _write(self, effect: WriteSnapshot) -> None:
        try:
            await self._loop.run_in_executor(self._thread, self._write_part, effect)
        except Exception as error:  # any error: the machine waits for the result before it takes another snapshot
            if effect.snapshot != self._failed:  # once per snapshot, not for every part
                self._failed = effect.snapshot
                self.failures += 1
                self.problem = str(error)
                log.error("could not write a snapshot: the journal grows until one is written", error=str(error))
                self._tell(SnapshotFailed(effect.snapshot))  # immediately: further parts are not needed
            return
        if effect.last:
            self.problem = ""
            self.written += 1
            self.written_wall_us = wall_us()
            self._tell(SnapshotStored(effect.snapshot))

    # --- in the thread ---

    def _names(self) -> list[Path]:
        """Complete snapshots, oldest first. Files with other names are ignored."""
        return sorted(self._folder.glob(f"snapshot-{'[0-9]' * 12}.lsnap"))

    def _write_part(self, effect: WriteSnapshot) -> None:
        if effect.first:
            self._abandon()
            self._file = (self._folder / "snapshot.part").open("wb")
            self._digest, self._length = hashlib.blake2b(digest_size=16), 0
        if self._file is None:
            raise OSError("could not write an earlier part of this snapshot")
        try:
            self._file.write(effect.part)
            self._digest.update(effect.part)
            self._length += len(effect.part)
            if effect.last:
                self._finish(self._file)
        except OSError:
            self._abandon()
            raise

    def _finish(self, file: BinaryIO) -> None:
        file.write(_TRAILER.pack(_MAGIC, self._length, self._digest.digest()))
        file.flush()
        os.fsync(file.fileno())
        file.close()
        self._file = None
        part = self._folder / "snapshot.part"
        self._check_back(part)
        names = self._names()
        number = int(names[-1].stem.rpartition("-")[2]) + 1 if names else 1
        part.rename(self._folder / f"snapshot-{number:012d}.lsnap")
        sync_folder(self._folder)
        for old in self._names()[:-KEPT]:
            old.unlink()

    def _check_back(self, part: Path) -> None:
        """Read the file back: confirming a snapshot in the store must mean that it is readable."""
        digest, left = hashlib.blake2b(digest_size=16), self._length
        with part.open("rb") as file:
            while left and (data := file.read(min(READ_BACK_BYTES, left))):
                digest.update(data)
                left -= len(data)
        if left or digest.digest() != self._digest.digest():
            raise OSError(f"'{part}' contains other bytes than were written")

    def _abandon(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None

    def _delete_all(self) -> int:
        names = self._names()
        for name in names:
            name.unlink(missing_ok=True)
        sync_folder(self._folder)
        return len(names)

    def _newest_sealed(self) -> bytes | None:
        for name in reversed(self._names()):
            with contextlib.suppress(OSError):
                data = name.read_bytes()
                if unseal(data) is not None:
                    return data
                log.error("a snapshot on disk is damaged: using an older one", file=str(name))
        return None

    def _newest_raw(self) -> bytes | None:
        data = self._newest_sealed()
        return None if data is None else unseal(data)


def sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
