"""Open a store: a new one in memory, one that this process shares by name, or one on disk."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable
from pathlib import Path

from leasehold.base.clock import Clock
from leasehold.mvcc.records import Clocked, Record
from leasehold.mvcc.store import Store
from leasehold.runtime.clock import BootClock
from leasehold.runtime.log import get_logger
from leasehold.store.disk import FIRST_GENERATION, Folder, Identity, Segment, read_snapshot, write_snapshot
from leasehold.store.engine import Engine
from leasehold.store.errors import StoreInUse
from leasehold.store.log import SegmentedLog
from leasehold.store.settings import StoreSettings

_log = get_logger("leasehold.store")

# Stores that several clients of this process share: by name (memory) or path (disk), with the number of clients.
_shared: dict[str, tuple[Engine, int]] = {}
_shared_lock = threading.Lock()


def _lease_id() -> int:
    return secrets.randbits(63)


def _new_store(settings: StoreSettings, identity: Identity) -> Store:
    return Store(
        lease_ttl_s_min=-(-settings.lease_ttl_min_ms // 1000),
        lease_ids=_lease_id,
        quota_bytes=settings.quota_bytes,
        cluster_id=identity.cluster_id,
        member_id=identity.member_id,
    )


def open_memory(settings: StoreSettings | None = None, clock: Clock | None = None) -> Engine:
    """A new store in memory."""
    settings = settings or StoreSettings()
    identity = Identity(secrets.randbits(63), secrets.randbits(63))
    return Engine(_new_store(settings, identity), clock or BootClock(), settings)


def open_folder(path: Path, settings: StoreSettings | None = None, clock: Clock | None = None) -> Engine:
    """Open the store in a directory, with its last state. An empty directory gets a new store."""
    settings = settings or StoreSettings()
    clock = clock or BootClock()
    folder = Folder(path)
    try:
        return _open(folder, settings, clock)
    except BaseException:
        folder.close()
        raise


def _open(folder: Folder, settings: StoreSettings, clock: Clock) -> Engine:
    store = _new_store(settings, Identity(0, 0))
    time_ms = 0

    def take(records: list[Record]) -> None:
        nonlocal time_ms
        for record in records:
            if type(record) is Clocked:
                time_ms = max(time_ms, record.now_ms)
            else:
                store.apply(record)

    found = folder.recover(take)
    identity = found.identity if found else Identity(secrets.randbits(63), secrets.randbits(63))
    generation, number = (found.generation, found.number) if found else (FIRST_GENERATION, 1)
    if found and found.cut_bytes:
        _log.warning("an unfinished write at the end of the log was cut off", bytes=found.cut_bytes)
    store.set_identity(identity.cluster_id, identity.member_id)
    log = SegmentedLog(folder, identity, generation, number, settings.segment_bytes)
    pending: list[Record] = []
    store.journal_to(pending.append)
    return Engine(store, clock, settings, log=log, pending=pending, clock_offset_ms=time_ms - clock.now_ms())


def restore(snapshot: Path, path: Path) -> None:
    """Create a store's directory from a snapshot. Rejects a directory that contains a store."""
    identity = read_snapshot(snapshot, lambda _records: None)
    folder = Folder(path)
    try:
        if any(path.glob("*.log")) or any(path.glob("*.snapshot")):
            raise StoreInUse(f"{path} holds a store already: restore into a new directory")
        records: list[Record] = []
        read_snapshot(snapshot, records.extend)
        write_snapshot(folder.snapshot_path(FIRST_GENERATION), identity, records)
        # After the snapshot: a crash in between leaves a directory that is rejected, not what looks like a new store.
        Segment(folder.segment_path(FIRST_GENERATION), identity, 1).close()
    finally:
        folder.close()


def _forget_shared() -> None:
    global _shared_lock
    _shared.clear()
    _shared_lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_shared)


def acquire(name: str, make: Callable[[], Engine]) -> Engine:
    """The engine that this process shares under `name`, created if needed. The caller must `release` it."""
    with _shared_lock:
        engine, users = _shared.get(name) or (make(), 0)
        _shared[name] = engine, users + 1
        return engine


def release(name: str, *, keep: bool = False) -> None:
    """Drop one user. The last one closes the engine, unless `keep`: a named store in memory outlives its clients."""
    with _shared_lock:
        engine, users = _shared[name]
        if users > 1 or keep:
            _shared[name] = engine, users - 1
            return
        del _shared[name]
        engine.close()
