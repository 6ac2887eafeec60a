"""The store's directory: a lock, the log in segments, and a snapshot at which the log begins.

    lock                       held by the process that has the directory open
    00000007.snapshot          the state when segment 7 began
    00000007.log, 00000008.log every change since, one frame per group commit

A snapshot is written while the log continues, and renamed to its final name only when it is complete and on disk. Then
older files are removed. So the newest snapshot, with the segments from its number on, is always the whole state.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from leasehold.base.decoding import UNDECODABLE
from leasehold.mvcc.records import Committed, Record
from leasehold.store.errors import StoreDamaged, StoreInUse
from leasehold.store.log_frames import Frames, encode_frame

FORMAT = 1
FIRST_GENERATION = 1
_PREAMBLE = b"leasehold store, format "
_EXPORT_BLOCK_BYTES = 512
# Limits of a frame in a snapshot, in records and approximate bytes.
FRAME_RECORDS = 500
FRAME_BYTES = 1 << 20
# Zeros are written up to this far ahead in a segment: an idle store takes this much extra disk space.
AHEAD_BYTES = 256 << 10
# Zeros are written in pieces: Linux keeps one write in one folio, and scans that whole folio at every later sync.
ZEROS_BYTES = 64 << 10


class Identity(Struct, frozen=True):
    """The identity of a store, in the first line of every file."""

    cluster_id: int
    member_id: int
    format: int = FORMAT

    def line(self) -> bytes:
        return _PREAMBLE + msgspec.json.encode(self) + b"\n"


def read_identity(path: Path, data: bytes) -> tuple[Identity, int]:
    """The identity in a file's first line, and the offset of the first frame."""
    end = data.find(b"\n", 0, 1024) + 1
    if not data.startswith(_PREAMBLE) or not end:
        raise StoreDamaged(f"{path}: not a file of a Leasehold store; nothing was changed")
    try:
        identity = msgspec.json.decode(data[len(_PREAMBLE) : end - 1], type=Identity)
    except UNDECODABLE as error:
        raise StoreDamaged(f"{path}: the first line cannot be read ({error}); nothing was changed") from None
    if identity.format != FORMAT:
        raise StoreDamaged(f"{path}: format {identity.format} is not known to this version, which reads {FORMAT}")
    return identity, end


def write_snapshot(path: Path, identity: Identity, records: Iterable[Record]) -> int:
    """Write a snapshot atomically. Returns its size in bytes."""
    draft = path.with_suffix(".draft")
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    size = 0
    try:
        for chunk in snapshot_chunks(identity, records):
            size += len(chunk)
            _write_all(file, chunk)
        os.fsync(file)
    except BaseException:
        os.unlink(draft)  # especially on a full disk: the log needs the space
        raise
    finally:
        os.close(file)
    os.rename(draft, path)
    sync_folder(path.parent)
    return size


def _write_all(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def snapshot_chunks(identity: Identity, records: Iterable[Record]) -> Iterator[bytes]:
    """A snapshot's bytes, in chunks. The last frame is empty: without it the snapshot is incomplete."""
    yield identity.line()
    number = 1
    pending: list[Record] = []
    pending_bytes = 0
    for record in records:
        pending.append(record)
        pending_bytes += _bytes_of(record)
        if len(pending) >= FRAME_RECORDS or pending_bytes >= FRAME_BYTES:
            yield encode_frame(number, pending)
            number += 1
            pending = []
            pending_bytes = 0
    if pending:
        yield encode_frame(number, pending)
        number += 1
    yield encode_frame(number, [])


def _bytes_of(record: Record) -> int:
    if not isinstance(record, Committed):
        return 0
    return sum(len(version[0]) + len(version[1]) for version in record.versions if version is not None)


def export_chunks(identity: Identity, records: Iterable[Record]) -> Iterator[bytes]:
    """A snapshot in the form that `etcdctl snapshot save` expects: padded, with its SHA-256 at the end."""
    digest = sha256()
    size = 0
    for chunk in snapshot_chunks(identity, records):
        digest.update(chunk)
        size += len(chunk)
        yield chunk
    padding = bytes(-size % _EXPORT_BLOCK_BYTES)
    digest.update(padding)
    yield padding + digest.digest()


def _without_digest(data: bytes) -> bytes:
    """An exported snapshot without its digest; other content unchanged (its frames have checksums)."""
    content, digest = data[: -sha256().digest_size], data[-sha256().digest_size :]
    return content.rstrip(b"\0") if sha256(content).digest() == digest else data


def read_snapshot(path: Path, take: Callable[[list[Record]], None]) -> Identity:
    """Pass all records of a snapshot to `take`. Rejects an incomplete snapshot."""
    data = _without_digest(path.read_bytes())
    identity, start = read_identity(path, data)
    frames = Frames(data, start, str(path))
    whole = False
    for frame in frames:
        take(frame.records)
        whole = not frame.records
    if frames.torn or not whole:
        raise StoreDamaged(f"{path}: the snapshot is damaged at byte {frames.end}; nothing was changed")
    return identity


def sync_folder(folder: Path) -> None:
    """Make names durable: a new or renamed file survives a crash only if its folder was synced."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove(path: Path) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _make_folder(path: Path) -> None:
    """Create it and its parents, durably: an acknowledged write must not vanish with its folder."""
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    for folder in made:
        sync_folder(folder.parent)


def _is_unfinished_line(data: bytes) -> bool:
    """Whether this is only a part of a first line. After a power cut the rest may be zeros."""
    written = data.rstrip(b"\0")
    return b"\n" not in written[:1024] and Identity(0, 0).line().startswith(written[: len(_PREAMBLE)])


class Segment:
    """One file of the log, open for writing at its end.

    The file is longer than what is in it: zeros are written ahead of the frames. When a frame only takes the place of
    zeros, nothing about the file itself (its length, its blocks) has to be synced with it, which is a quarter of the
    time on a plain file system, and more than half on one with a journal. Zeros are no frame: reading ends where they
    begin. Closing cuts them off.
    """

    def __init__(self, path: Path, identity: Identity, number: int, ahead_bytes: int = AHEAD_BYTES) -> None:
        """Open or create it. `number` is the number of the next frame."""
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.number = number
        self._ahead_bytes = ahead_bytes
        self.size_bytes = os.fstat(self._file).st_size
        if self.size_bytes == 0:
            self._put(identity.line())
        self._zeros_end = self.size_bytes
        # Also if nothing is new: data that a killed process had written but not synced was just read. It will be
        # shown to readers, so a crash must not undo it.
        os.fsync(self._file)
        sync_folder(path.parent)

    def append(self, records: Sequence[Record]) -> None:
        """Write one frame. It is on disk when this returns."""
        frame = encode_frame(self.number, records)
        self.number += 1
        self._put(frame)
        # Not after a large frame: its cost is the amount of data, which should not be written twice.
        if self.size_bytes > self._zeros_end and len(frame) < self._ahead_bytes // 4:
            self._write_zeros()
        os.fdatasync(self._file)

    def _put(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            written = os.pwrite(self._file, rest, self.size_bytes)
            self.size_bytes += written
            rest = rest[written:]

    def _write_zeros(self) -> None:
        """Write zeros up to the next multiple of `ahead_bytes`, as far as the disk has space."""
        end = self.size_bytes
        goal = end + self._ahead_bytes - end % self._ahead_bytes
        with suppress(OSError):  # no space. A failing disk reports it when the frame is synced
            while end < goal:
                end += os.pwrite(self._file, bytes(min(goal - end, ZEROS_BYTES)), end)
        self._zeros_end = end

    def finish(self) -> None:
        """Cut the file after its last frame, durably, and close it: only the newest segment may end in zeros."""
        try:
            os.ftruncate(self._file, self.size_bytes)
            os.fsync(self._file)
        finally:
            self.close()

    def close(self) -> None:
        os.close(self._file)


class Folder:
    """The directory of one store, locked by this process until `close`."""

    def __init__(self, path: Path) -> None:
        _make_folder(path)
        self.path = path
        self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._lock, 20, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._lock)
            raise StoreInUse(
                f"{path} is open in another process (pid {holder}): a store has one owner; "
                "share it with `leasehold store` and connect to that"
            ) from None
        with suppress(OSError):  # a full disk: the process id is only for people, the lock works without it
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def snapshot_path(self, generation: int) -> Path:
        return self.path / f"{generation:08}.snapshot"

    def segment_path(self, generation: int) -> Path:
        return self.path / f"{generation:08}.log"

    def _generations(self, suffix: str) -> list[int]:
        return sorted(int(path.stem) for path in self.path.glob(f"*.{suffix}") if path.stem.isdigit())

    def recover(self, take: Callable[[list[Record]], None]) -> Recovered | None:
        """Pass every record to `take`, in order. Returns None for an empty directory. A torn tail is cut off."""
        snapshots = self._generations("snapshot")
        segments = self._generations("log")
        if not snapshots and not segments:
            return None
        first = snapshots[-1] if snapshots else FIRST_GENERATION
        wanted = [generation for generation in segments if generation >= first]
        self._check_complete(first, segments, wanted)
        identity = read_snapshot(self.snapshot_path(first), take) if snapshots else None
        number = 0
        cut_bytes = 0
        for generation in wanted:
            found, number, cut_bytes = self._recover_segment(generation, number, generation == wanted[-1], take)
            if found and identity and found != identity:
                raise StoreDamaged(
                    f"{self.segment_path(generation)} belongs to another store (cluster {found.cluster_id:x}, not "
                    f"{identity.cluster_id:x}); nothing was changed"
                )
            identity = identity or found
        if identity is None:
            return None
        return Recovered(identity, wanted[-1], number + 1, cut_bytes)

    def _check_complete(self, first: int, segments: list[int], wanted: list[int]) -> None:
        """Reject a directory with a missing file. A snapshot is written only after its segment exists."""
        last = max(segments, default=first)
        missing = [generation for generation in range(first, max(first, last) + 1) if generation not in wanted]
        if not missing:
            return
        if missing[0] == first and first == FIRST_GENERATION and segments:
            why = f"the snapshot {self.snapshot_path(segments[0]).name} is missing, or all log before it"
        else:
            why = f"the log segment {self.segment_path(missing[0]).name} is missing"
        raise StoreDamaged(f"{self.path}: {why}; nothing was changed: put it back, or restore a snapshot elsewhere")

    def _recover_segment(
        self, generation: int, number: int, last: bool, take: Callable[[list[Record]], None]
    ) -> tuple[Identity | None, int, int]:
        path = self.segment_path(generation)
        data = path.read_bytes()
        if last and _is_unfinished_line(data):
            os.truncate(path, 0)  # the process died while it wrote the first line
            return None, number, len(data)
        identity, start = read_identity(path, data)
        frames = Frames(data, start, str(path), number)
        for frame in frames:
            if number and frame.number != number + 1:
                raise StoreDamaged(f"{path}: frame {number + 1} is missing (found {frame.number}); nothing was changed")
            number = frame.number
            take(frame.records)
        if not frames.torn:
            return identity, number, 0
        later = frames.next_whole()
        if later is not None or not last:
            raise StoreDamaged(
                f"{path}: damaged at byte {frames.end}, and good again at byte {later or 'none'}: this is not the "
                "torn end of an unfinished write. Nothing was changed; restore a snapshot with "
                "`leasehold store --restore FILE --data NEW-DIRECTORY`"
            )
        os.truncate(path, frames.end)  # made durable when the segment is opened for writing
        unfinished = data[frames.end :].rstrip(b"\0")  # every process that was killed leaves zeros
        return identity, number, len(unfinished)

    def forget_before(self, generation: int) -> None:
        """Remove files that a snapshot of `generation` replaces."""
        for suffix in ("snapshot", "log"):
            for old in self._generations(suffix):
                if old < generation:
                    _remove(self.path / f"{old:08}.{suffix}")
        for draft in self.path.glob("*.draft"):
            _remove(draft)

    def close(self) -> None:
        os.close(self._lock)


class Recovered(Struct, frozen=True):
    """The result of `Folder.recover`: `generation` is the segment to continue, `number` that of its next frame."""

    identity: Identity
    generation: int
    number: int
    cut_bytes: int
