"""What can be known before a worker is started. A worker that cannot start would be restarted for ever instead."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import BinaryIO

from leasehold.base.errors import InvalidArgument, ResourceUnavailable, SettingError
from leasehold.coord.url import parse_url
from leasehold.etcd.transport.tls import tls_context
from leasehold.node.settings import NodeConfig, parse_compat
from leasehold.wire.tables import find_release


def check(config: NodeConfig) -> BinaryIO:
    """Raise `SettingError` with the setting that can never work on this machine.

    Makes the data directory; what is returned holds it for this process, for as long as it is kept.
    """
    node = config.node
    try:
        address, options = parse_url(node.coord)
        if address.scheme == "etcds":
            tls_context(options)  # its files can be read, and are what they should be
    except InvalidArgument as error:
        raise SettingError(f"coord: {error}") from None
    for port in parse_compat(node.rpc_compat, node.cluster):
        try:
            find_release(port.release)
        except InvalidArgument as error:
            raise SettingError(f"rpc_compat: {error}") from None
    check_buffer(node.buffer)
    return hold(Path(node.data_dir))


def check_buffer(buffer: str) -> None:
    """Raise `SettingError` if that names no buffer."""
    if buffer != "disk" and not buffer.startswith(("redis://", "rediss://", "unix://")):
        raise SettingError(f"buffer = {buffer!r}: `disk` or redis://HOST:PORT is wanted")


def hold(folder: Path) -> BinaryIO:
    """The directory, for this process, for as long as what is returned is kept open.

    Two nodes on one directory would take each other's snapshots for their own.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("a+b")
    except OSError as error:
        raise _unwritable(folder, error) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        raise ResourceUnavailable(
            f"data_dir = {folder}: another node (pid {lock.read().decode() or '?'}) keeps its state there: "
            "give each node a directory of its own"
        ) from None
    try:
        lock.truncate(0)
        lock.write(str(os.getpid()).encode())
        lock.flush()
    except OSError as error:
        raise _unwritable(folder, error) from None
    return lock


def _unwritable(folder: Path, error: OSError) -> SettingError:
    if folder.exists() and not folder.is_dir():
        return SettingError(f"data_dir = {folder}: this is a file: name a directory")
    return ResourceUnavailable(
        f"data_dir = {folder}: cannot be written ({error.strerror}): make room, or name a directory of this user's own"
    )
