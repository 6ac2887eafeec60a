"""SQLite behind the authority: one file, one thread, every write synced."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from leasehold.base.errors import Unavailable
from leasehold.cache.errors import TokenRefused
from leasehold.cache.model import Version
from leasehold.cache.stores.api import Kept, Opened

T = TypeVar("T")

# Deleted keys stay as rows without a value until the next epoch: a late write must find the newer token.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS cache_state (
  one INTEGER PRIMARY KEY CHECK (one = 1), epoch INTEGER NOT NULL, term_ms INTEGER NOT NULL, clean INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS cache_values (
  key BLOB PRIMARY KEY, epoch INTEGER NOT NULL, n INTEGER NOT NULL, value BLOB) WITHOUT ROWID;
"""
_STORE = """
INSERT INTO cache_values (key, epoch, n, value)
SELECT :key, :epoch, :n, :value WHERE (SELECT epoch FROM cache_state) = :epoch
ON CONFLICT (key) DO UPDATE SET epoch = :epoch, n = :n, value = :value WHERE (epoch, n) < (:epoch, :n)
"""


class SqliteStore:
    """Values in a table of `path`. The file belongs to one authority at a time.

    A newer authority fences the *writes* of the older one off. Until the older one writes, it does not notice, and
    keeps granting leases: stop it first, or use an election (`run_for_term`).
    """

    is_memory = False

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="leasehold-cache-sqlite")
        self._connection: sqlite3.Connection | None = None
        self._epoch = 0

    async def open(self, term_ms: int) -> Opened:
        try:
            opened = await self._run(lambda db: _open(db, term_ms))
        except sqlite3.Error as error:
            raise Unavailable(f"the cache's file {self._path} cannot be opened: {error}") from None
        self._epoch = opened.epoch
        return opened

    async def load(self, key: bytes) -> Kept | None:
        def read(db: sqlite3.Connection) -> Kept | None:
            row = db.execute("SELECT value, epoch, n FROM cache_values WHERE key = ?", (key,)).fetchone()
            return None if row is None or row[0] is None else Kept(row[0], Version(row[1], row[2]))

        return await self._run(read)

    async def store(self, key: bytes, value: bytes | None, token: Version) -> None:
        values = {"key": key, "epoch": token.epoch, "n": token.n, "value": value}

        def write(db: sqlite3.Connection) -> int:
            with db:
                return db.execute(_STORE, values).rowcount

        if await self._run(write) != 1:
            raise TokenRefused(f"{self._path} has a newer token than {token}: another authority has begun a term")

    async def settle_term(self, term_ms: int) -> None:
        await self._update("UPDATE cache_state SET term_ms = ? WHERE epoch = ?", term_ms)

    async def mark_clean(self) -> None:
        await self._update("UPDATE cache_state SET clean = ? WHERE epoch = ?", 1)

    async def close(self) -> None:
        if self._connection is not None:
            await self._run(sqlite3.Connection.close)
        self._thread.shutdown()

    async def _update(self, statement: str, value: int) -> None:
        def write(db: sqlite3.Connection) -> None:
            with db:
                db.execute(statement, (value, self._epoch))

        await self._run(write)

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(self._connected()))

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = sqlite3.connect(self._path, timeout=5)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.executescript(_SCHEMA)
        return self._connection


def _open(db: sqlite3.Connection, term_ms: int) -> Opened:
    with db:
        db.execute("BEGIN IMMEDIATE")
        row = db.execute("SELECT epoch, term_ms, clean FROM cache_state").fetchone()
        epoch, before_ms, clean = row or (0, 0, 1)
        db.execute(
            "INSERT OR REPLACE INTO cache_state (one, epoch, term_ms, clean) VALUES (1, ?, ?, 0)",
            (epoch + 1, max(before_ms, term_ms)),
        )
        db.execute("DELETE FROM cache_values WHERE value IS NULL")  # no older epoch can store any more
    return Opened(epoch + 1, 0 if clean else before_ms)
