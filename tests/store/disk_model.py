"""A disk that may lose what was not synced: the file operations of a store, recorded, and what a crash leaves of them.

Names and contents become durable separately: a file's content when the file was synced, its name when its folder was.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SECTOR_BYTES = 512  # a disk writes a sector atomically

Image = dict[str, bytes]  # the folder: name -> content

Operation = tuple[Any, ...]  # ("write", name, data), ("sync", name), ..., and ("answered", key)


class RecordingOs:
    """Stands in for `os` in the store's disk module: does everything, and writes it down.

    `fail_at` makes one operation fail, and all after it, as a disk that is full or broken does.
    """

    def __init__(self, *, fail_at: int | None = None, code: int = errno.EIO) -> None:
        self.operations: list[Operation] = []
        self._open: dict[int, str] = {}
        self._fail_at = fail_at
        self._code = code

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def _note(self, *operation: Any) -> None:
        if self._fail_at is not None and len(self.operations) >= self._fail_at:
            raise OSError(self._code, os.strerror(self._code))
        self.operations.append(operation)

    def answered(self, key: bytes) -> None:
        self.operations.append(("answered", key))

    def open(self, path: Path, flags: int, mode: int = 0o777) -> int:
        name = Path(path).name
        if flags & os.O_CREAT and name != "lock":
            if not Path(path).exists():
                self._note("create", name)
            if flags & os.O_TRUNC:
                self._note("truncate", name, 0)
        handle = os.open(path, flags, mode)
        self._open[handle] = "." if flags & os.O_DIRECTORY else name
        return handle

    def close(self, handle: int) -> None:
        self._open.pop(handle, None)
        os.close(handle)

    def write(self, handle: int, data: bytes | memoryview) -> int:
        self._note("write", self._open[handle], bytes(data))
        return os.write(handle, data)

    def pwrite(self, handle: int, data: bytes | memoryview, offset: int) -> int:
        if self._open[handle] != "lock":
            self._note("pwrite", self._open[handle], bytes(data), offset)
        return os.pwrite(handle, data, offset)

    def ftruncate(self, handle: int, length: int) -> None:
        if self._open[handle] != "lock":
            self._note("truncate", self._open[handle], length)
        os.ftruncate(handle, length)

    def fsync(self, handle: int) -> None:
        self._note("sync", self._open[handle])

    fdatasync = fsync

    def rename(self, old: Path, new: Path) -> None:
        self._note("rename", Path(old).name, Path(new).name)
        os.rename(old, new)

    def unlink(self, path: Path) -> None:
        self._note("unlink", Path(path).name)
        os.unlink(path)

    def truncate(self, path: Path, length: int) -> None:
        self._note("truncate", Path(path).name, length)
        os.truncate(path, length)


class _File:
    def __init__(self) -> None:
        self.content = b""
        self.synced = b""

    def overwrite(self, data: bytes, offset: int) -> None:
        before = self.content[:offset] + bytes(max(0, offset - len(self.content)))
        self.content = before + data + self.content[offset + len(data) :]

    def torn(self) -> bytes:
        """Of what was changed since the last sync, the first half."""
        middle = self._middle_of_changes()
        return self.content[:middle] + self.synced[middle:]

    def torn_backwards(self) -> bytes:
        """Of what was changed since the last sync, the later sectors: a disk writes them in whatever order it likes."""
        middle = self._middle_of_changes()
        middle = min(middle + -middle % SECTOR_BYTES, len(self.content))
        there = self.synced[:middle] + bytes(max(0, middle - len(self.synced)))
        return there + self.content[middle:]

    def zeros(self) -> bytes:
        """The length is on the disk, the bytes are not."""
        return self.synced + bytes(max(0, len(self.content) - len(self.synced)))

    def _middle_of_changes(self) -> int:
        begin, end = _alike(self.content, self.synced), len(self.content)
        if len(self.synced) == end:
            end -= _alike(self.content[:begin:-1], self.synced[:begin:-1])
        return (begin + end) // 2


def _alike(one: bytes, other: bytes) -> int:
    """How many bytes are the same before the first that is not."""
    both = zip(one, other, strict=False)
    return next((place for place, (mine, theirs) in enumerate(both) if mine != theirs), min(len(one), len(other)))


class Disk:
    """The folder after the recorded operations."""

    def __init__(self) -> None:
        self._names: dict[str, _File] = {}
        self._synced_names: dict[str, _File] = {}

    def do(self, operation: Operation) -> None:
        kind, *rest = operation
        if kind == "create":
            self._names[rest[0]] = _File()
        elif kind == "write":
            self._names[rest[0]].content += rest[1]
        elif kind == "pwrite":
            self._names[rest[0]].overwrite(rest[1], rest[2])
        elif kind == "truncate":
            self._names[rest[0]].content = self._names[rest[0]].content[: rest[1]]
        elif kind == "rename":
            self._names[rest[1]] = self._names.pop(rest[0])
        elif kind == "unlink":
            del self._names[rest[0]]
        elif kind == "sync" and rest[0] == ".":
            self._synced_names = dict(self._names)
        elif kind == "sync":
            self._names[rest[0]].synced = self._names[rest[0]].content

    def after_a_kill(self) -> Image:
        return {name: file.content for name, file in self._names.items()}

    def after_a_power_cut(self) -> Iterator[Image]:
        """Names and contents that were not synced may be there or not."""
        both = {**self._synced_names, **self._names}
        for names in (self._names, self._synced_names, both):
            yield {name: file.synced for name, file in names.items()}
            yield {name: file.content for name, file in names.items()}
            yield {name: file.torn() for name, file in names.items()}
            yield {name: file.torn_backwards() for name, file in names.items()}
            yield {name: file.zeros() for name, file in names.items()}
