"""Helpers shared by the tests of the store."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from leasehold.store.client import LocalClient
from leasehold.store.engine import Engine
from leasehold.store.opening import open_folder
from leasehold.store.settings import StoreSettings
from leasehold.testing.etcd import etcd_binary

TIMEOUT_S = 60  # ends a hang


@asynccontextmanager
async def opened(path: Path, settings: StoreSettings | None = None) -> AsyncIterator[LocalClient]:
    """A client on the store in `path`; the store is closed in the end."""
    engine = open_folder(path, settings)
    client = LocalClient(engine, on_close=engine.close)
    try:
        yield client
    finally:
        await client.close()


def crash(engine: Engine) -> None:
    """End an engine as a killed process would: nothing more is written, the directory's lock is let go."""
    with engine.lock:
        engine.closed = True
        engine.store.journal_to(lambda _record: None)
        engine._pending.clear()  # the test stands in for the kernel here
        engine._wakeup.notify_all()
    if engine._keeper is not None:
        engine._keeper.join()
    if engine._log is not None:
        engine._log.abandon_in_child()


async def snapshot_written(client: LocalClient) -> None:
    """Not to have it overtaken by the next writes: what is done, and in which order, is then the same in every run."""
    writer = client.engine._log._writer  # type: ignore[union-attr]  # a store on disk has a log
    if writer is not None:
        await asyncio.to_thread(writer.join)


def etcdctl(endpoint: str, *arguments: str, stdin: str = "") -> str:
    """Run the real etcdctl. Returns its output."""
    done = run_etcdctl(endpoint, arguments, stdin)
    assert done.returncode == 0, f"etcdctl {arguments}: {done.stderr}"
    return done.stdout


def run_etcdctl(endpoint: str, arguments: Sequence[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        etcdctl_command(endpoint, *arguments),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, "ETCDCTL_API": "3"},
    )


def etcdctl_command(endpoint: str, *arguments: str) -> list[str]:
    """With longer timeouts: the defaults are 2 s for a connection and 5 s for an answer."""
    patience = (f"--dial-timeout={TIMEOUT_S}s", f"--command-timeout={TIMEOUT_S}s")
    return [str(Path(etcd_binary().path).parent / "etcdctl"), "--endpoints", endpoint, *patience, *arguments]
