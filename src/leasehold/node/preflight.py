"""Checks before a worker is started: a worker that cannot start would be restarted again and again."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import BinaryIO

from leasehold.base.errors import InvalidArgument, ResourceUnavailable, SettingError
from leasehold.coord.url import parse_url
from leasehold.etcd.transport.tls import tls_context
from leasehold.node.access import access_policy, signer
from leasehold.node.event_addresses import check_events
from leasehold.node.settings import NodeConfig, parse_compat
from leasehold.runtime.tls import Tls
from leasehold.wire.tables import find_release


def check(config: NodeConfig) -> BinaryIO:
    """Create and lock the data directory; raise `SettingError` for a setting that cannot work on this machine.

    The lock lasts until the returned file is closed.
    """
    node = config.node
    try:
        address, options = parse_url(node.coord)
        if address.scheme == "etcds":
            tls_context(options)  # raises if a file is unreadable or invalid
    except InvalidArgument as error:
        raise SettingError(f"coord: {error}") from None
    for port in parse_compat(node.rpc_compat, node.cluster):
        try:
            find_release(port.release)
        except InvalidArgument as error:
            raise SettingError(f"rpc_compat: {error}") from None
    check_buffer(node.buffer)
    check_events(config.events)
    access_policy(config)  # raises if the token file is unreadable or malformed
    signer(config)  # raises if the secret file is
    tls = Tls.of(config.tls)  # raises if a file is unreadable or no certificate
    if tls is not None and not tls.serves:
        raise SettingError("tls_ca is given without tls_cert and tls_key: a node serves its ports with a certificate")
    if node.rpc_tls and tls is None:
        raise SettingError(f"rpc_tls = '{node.rpc_tls}' needs tls_cert and tls_key; see `leasehold certs --help`")
    return lock_directory(Path(node.data_dir))


def check_buffer(buffer: str) -> None:
    """Raise `SettingError` if `buffer` is neither `disk` nor a Redis URL."""
    if buffer != "disk" and not buffer.startswith(("redis://", "rediss://", "unix://")):
        raise SettingError(f"buffer = {buffer!r} is not a buffer; write disk or redis://HOST:PORT")


def lock_directory(folder: Path) -> BinaryIO:
    """Create the directory and lock it for this process; closing the returned file releases it.

    Without the lock, two nodes in one directory would load each other's snapshots.
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
            f"data_dir = '{folder}' is in use by another node (pid {lock.read().decode() or '?'}); "
            "give each node its own directory"
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
        return SettingError(f"data_dir = '{folder}' is a file; give a directory")
    return ResourceUnavailable(
        f"data_dir = '{folder}' is not writable ({error.strerror}): free some space, or give a directory of this user"
    )
