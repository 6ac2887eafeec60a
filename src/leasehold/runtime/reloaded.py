"""A value parsed from files, parsed again when one of them changes: tokens, certificates, secrets."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Generic, TypeVar

from leasehold.base.errors import ResourceUnavailable, SettingError
from leasehold.runtime.log import get_logger

log = get_logger("leasehold.files")

T = TypeVar("T")
FILE_BYTES_MAX: Final = 1 << 20
CHECK_INTERVAL_S: Final = 1.0
_Stamp = tuple[int, int, int]


class Reloaded(Generic[T]):
    """`value()` looks at most once a second whether a file was replaced. A new file that does not parse is logged, and
    the last good value stays: a rotation that fails must not stop a running node."""

    def __init__(self, paths: Sequence[str | Path], parse: Callable[[], T]) -> None:
        """`parse` reads the files; it raises `SettingError` or `OSError`. The first time, errors are the caller's."""
        self._paths = [Path(path) for path in paths]
        self._parse = parse
        self._stamps = self._look()
        self._value = parse()
        self._next_look_s = time.monotonic() + CHECK_INTERVAL_S
        self.changes = 0  # how often another value was read

    def value(self) -> T:
        """The value of the files, at most a second old."""
        if time.monotonic() >= self._next_look_s:
            self.refresh()
        return self._value

    def refresh(self) -> None:
        """Look at the files now."""
        self._next_look_s = time.monotonic() + CHECK_INTERVAL_S
        stamps = self._look()
        if stamps == self._stamps:
            return
        self._stamps = stamps
        try:
            self._value = self._parse()
        except (SettingError, OSError, ValueError) as error:
            log.error("a changed file was not accepted: the previous contents stay in use", error=str(error))
            return
        self.changes += 1
        log.info("files were read again, because they changed", files=[str(path) for path in self._paths])

    def _look(self) -> list[_Stamp | None]:
        return [_stamp(path) for path in self._paths]


def _stamp(path: Path) -> _Stamp | None:
    try:
        status = os.stat(path)  # follows links, which Kubernetes replaces to change a mounted secret
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def read_small(path: str | Path, setting: str) -> str:
    """The text of a small file; the error names `setting`."""
    try:
        with Path(path).open("rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
        if len(raw) > FILE_BYTES_MAX:
            raise SettingError(f"{setting} = '{path}' is larger than {FILE_BYTES_MAX} bytes")
        return raw.decode()
    except UnicodeDecodeError:
        raise SettingError(f"{setting} = '{path}' is not a text file") from None
    except OSError as error:
        raise ResourceUnavailable(f"{setting} = '{path}' cannot be read: {error.strerror}") from None
