"""The durable log of one store: segments, and snapshots that limit their number."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress

from leasehold.mvcc.records import Record
from leasehold.runtime.log import get_logger
from leasehold.store.disk import AHEAD_BYTES, Folder, Identity, Segment, write_snapshot
from leasehold.store.engine import Engine

_log = get_logger("leasehold.store")


class SegmentedLog:
    """Appends to the newest segment. When it is full, starts another one and writes a snapshot in the background.

    A segment may grow to twice the size of the last snapshot, so that snapshots are at most half of all writes.
    """

    def __init__(self, folder: Folder, identity: Identity, generation: int, number: int, segment_bytes: int) -> None:
        self._folder = folder
        self._identity = identity
        self._generation = generation
        self._ahead_bytes = min(AHEAD_BYTES, segment_bytes)
        self._segment = Segment(folder.segment_path(generation), identity, number, self._ahead_bytes)
        self._segment_bytes = segment_bytes
        self._snapshot_bytes = 0
        self._next_state: Iterator[Record] | None = None
        self._writer: threading.Thread | None = None

    def prepare(self, engine: Engine) -> None:
        full = self._segment.size_bytes >= max(self._segment_bytes, 2 * self._snapshot_bytes)
        if full and (self._writer is None or not self._writer.is_alive()):
            self._next_state = engine.store.dump(engine.now_ms())

    def append(self, records: list[Record]) -> None:
        self._segment.append(records)
        if self._next_state is not None:
            self._rotate(self._next_state)
            self._next_state = None

    def _rotate(self, state: Iterator[Record]) -> None:
        self._segment.finish()  # before there is a newer one: only the newest segment may have a torn end
        self._generation += 1
        path = self._folder.segment_path(self._generation)
        self._segment = Segment(path, self._identity, self._segment.number, self._ahead_bytes)
        self._writer = threading.Thread(
            target=self._write_snapshot, args=(self._generation, state), name="leasehold-store-snapshot", daemon=True
        )
        self._writer.start()

    def _write_snapshot(self, generation: int, state: Iterator[Record]) -> None:
        path = self._folder.snapshot_path(generation)
        try:
            self._snapshot_bytes = write_snapshot(path, self._identity, state)
            self._folder.forget_before(generation)
        except OSError as error:
            # All older segments still exist, so nothing is lost; the next rotation tries again.
            _log.warning("a snapshot could not be written; the log continues", path=str(path), error=str(error))

    def abandon_in_child(self) -> None:
        """In a forked child: close the parent's files. The lock on the directory stays with the parent."""
        self._segment.close()
        self._folder.close()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.join()
        with suppress(OSError):  # its content is on disk; after a failed write the file may be closed
            self._segment.finish()
        self._folder.close()
