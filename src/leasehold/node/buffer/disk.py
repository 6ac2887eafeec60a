"""The buffer on disk: every batch is appended before it is sent, by epoch, in files of a few MiB.

It survives the process, not the host, so a write to the page cache is enough and there is no fsync. The guardian
drains it before it deletes a dead worker's leader key. An acknowledged batch that can no longer be added to the
journal (another epoch has begun) is quarantined in a separate file. Only an operator deletes that file.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from leasehold.base.errors import LeaseholdError
from leasehold.base.limits import MIB

BUFFER_BYTES_MAX: Final = 256 * MIB
FILE_BYTES: Final = 4 * MIB
ASIDE: Final = ".aside"
_NUMBER: Final = "[0-9]" * 20  # files with other names are not ours
_FRAME: Final = struct.Struct("<QII")  # last record's number, length, checksum


class BufferFull(LeaseholdError):
    """The buffer is full: acknowledgements wait until the store has committed some batches."""


class Quarantined(Struct, frozen=True):
    """Number and size of quarantined batches, which wait for an operator."""

    batches: int = 0
    bytes: int = 0


class DiskBuffer:
    """Batches by epoch, in the order of their numbers. A file is named `EPOCH-FIRST.buffer`.

    Quarantined batches count towards the limit: with too many of them `buffered` waits for the store, as `sync` does
    (P6).
    """

    def __init__(self, folder: Path, bytes_max: int = BUFFER_BYTES_MAX, file_bytes: int = FILE_BYTES) -> None:
        self._folder = folder
        self._bytes_max = bytes_max
        self._file_bytes = file_bytes
        self._epoch = -1
        self._files: list[tuple[Path, int, int]] = []  # of this run's epoch: (path, bytes, last number in it)
        self._open_file = -1  # the descriptor of the last one, which stays open: opening a file costs more than a write
        folder.mkdir(parents=True, exist_ok=True)
        self._quarantined_bytes = self.quarantined().bytes

    def push(self, epoch: int, last_n: int, batch: bytes) -> None:
        """Append one finished batch."""
        if epoch != self._epoch:
            self.close()
            self._epoch, self._files = epoch, []
        held = sum(size for _, size, _ in self._files) + self._quarantined_bytes
        if held + len(batch) > self._bytes_max:
            raise BufferFull(f"the buffer on disk is full ({held} bytes): the store must commit some batches first")
        if self._open_file < 0 or self._files[-1][1] >= self._file_bytes:
            self.close()
            path = self._folder / f"{epoch:020d}-{last_n:020d}.buffer"
            self._open_file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            self._files.append((path, 0, 0))
        path, size, _ = self._files[-1]
        frame = _frame(last_n, batch)
        self._append(frame, size)
        self._files[-1] = (path, size + len(frame), last_n)

    def _append(self, frame: bytes, size: int) -> None:
        """Write a whole frame or nothing: frames after an incomplete one could not be read."""
        written = 0
        try:
            while written < len(frame):
                written += os.write(self._open_file, frame[written:])
        except OSError:
            os.ftruncate(self._open_file, size)
            raise

    def forget(self, epoch: int, last_n: int) -> None:
        """Everything up to record `last_n` is in the store: delete files that contain nothing newer.

        The last file is emptied instead: with a file for each batch, every commit would create and delete one.
        """
        while epoch == self._epoch and self._files and self._files[0][2] <= last_n:
            path, size, file_n = self._files[0]
            if len(self._files) > 1:
                self._files.pop(0)
                path.unlink(missing_ok=True)
                continue
            if size:
                os.ftruncate(self._open_file, 0)
                self._files[0] = (path, 0, file_n)
            return

    def close(self) -> None:
        if self._open_file >= 0:
            os.close(self._open_file)
            self._open_file = -1

    def epochs(self) -> list[int]:
        return sorted({int(path.stem.partition("-")[0]) for path in self._folder.glob(f"{_NUMBER}-{_NUMBER}.buffer")})

    def bytes_left(self, led_epoch: int | None) -> int:
        """Size of the batches of all epochs but the one that this node leads."""
        paths = (path for old in self.epochs() if old != led_epoch for path in self._paths(old))
        return sum(_size_of(path) for path in paths)

    def read(self, epoch: int) -> Iterator[tuple[int, bytes]]:
        """(last record's number, batch) for every complete frame; an incomplete one was never acknowledged."""
        for path in self._paths(epoch):
            with contextlib.suppress(FileNotFoundError):  # the other process has deleted it: it is in the journal
                yield from read_frames(path)

    def drop(self, epoch: int) -> None:
        """Delete the files of an epoch whose batches are in the journal or quarantined."""
        if epoch == self._epoch:
            self.close()
            self._files = []
        for path in self._paths(epoch):
            path.unlink(missing_ok=True)

    def quarantine(self, epoch: int, frames: Sequence[tuple[int, bytes]]) -> Path:
        """Write these batches of a finished epoch to a quarantine file. Repeating it writes the same file."""
        path = self._folder / f"{epoch:020d}-{frames[0][0]:020d}-{len(frames)}{ASIDE}"
        unfinished = path.with_suffix(".unfinished")
        with unfinished.open("wb") as file:
            for last_n, batch in frames:
                file.write(_frame(last_n, batch))
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        self._quarantined_bytes = self.quarantined().bytes
        return path

    def quarantined(self) -> Quarantined:
        """Number and size of the quarantined batches in this folder."""
        found = list(self._folder.glob(f"*{ASIDE}"))
        return Quarantined(sum(_batches_in(path) for path in found), sum(path.stat().st_size for path in found))

    def _paths(self, epoch: int) -> list[Path]:
        return sorted(self._folder.glob(f"{epoch:020d}-{_NUMBER}.buffer"))


def read_frames(path: Path) -> Iterator[tuple[int, bytes]]:
    """(last record's number, batch) for every complete frame of a buffer file or a quarantine file."""
    data, at = path.read_bytes(), 0
    while at + _FRAME.size <= len(data):
        last_n, length, checksum = _FRAME.unpack_from(data, at)
        batch = data[at + _FRAME.size : at + _FRAME.size + length]
        if len(batch) < length or zlib.crc32(batch) != checksum:
            return
        yield last_n, batch
        at += _FRAME.size + length


def _size_of(path: Path) -> int:
    """0 if the file was deleted: guardian and worker share the folder."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _frame(last_n: int, batch: bytes) -> bytes:
    return _FRAME.pack(last_n, len(batch), zlib.crc32(batch)) + batch


def _batches_in(path: Path) -> int:
    """The count is part of the name, so that a status reads no files; a file with another name counts as one."""
    count = path.stem.rpartition("-")[2]
    return int(count) if path.stem.count("-") == 2 and count.isdigit() else 1
