"""Storage outside the coordination store: snapshots on disk, and finished batches in the buffer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from leasehold.base.errors import LeaseholdError, SettingError
from leasehold.coord.api import Coord
from leasehold.ha.effects import DrainBuffer, ForgetBuffer, PushBuffer, ReadSnapshot, WriteSnapshot
from leasehold.ha.events import BufferDrained, BufferFailed, BufferPushed, NodeEvent
from leasehold.ha.keys import Keys
from leasehold.node.access import PeerAccess
from leasehold.node.buffer.disk import DiskBuffer
from leasehold.node.buffer.leftovers import BufferCleanup
from leasehold.node.settings import NodeConfig
from leasehold.node.worker.snapshot_files import SnapshotFiles
from leasehold.runtime.tasks import TaskSet

if TYPE_CHECKING:
    from leasehold.node.buffer.redis import RedisBuffer

log = structlog.get_logger("leasehold.buffer")
Tell = Callable[[NodeEvent], None]


class Persistence:
    """Carries out the snapshot and buffer effects of the machine; implements `driver.Keeper`."""

    def __init__(self, config: NodeConfig, coord: Coord, tell: Tell, admin_of: Callable[[str], str]) -> None:
        folder = Path(config.node.data_dir)
        self._tell = tell
        self._tasks = TaskSet()
        self._steps: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._busy = False
        self.snapshots = SnapshotFiles(folder / "snapshots", tell, admin_of, PeerAccess(config))
        self._disk: DiskBuffer | None = None
        self._redis: RedisBuffer | None = None
        where = config.node.buffer
        if where == "disk":
            self._disk = DiskBuffer(folder / "buffer")
        elif where.startswith(("redis://", "rediss://", "unix://")):
            from leasehold.node.buffer.redis import RedisBuffer  # slow to import, and rarely needed

            self._redis = RedisBuffer(where, config.node.cluster)
        else:
            raise SettingError(f"buffer = {where!r} is not a buffer; write disk or redis://HOST:PORT")
        self.cleanup = BufferCleanup(coord, Keys(config.node.cluster, config.node.prefix), self._disk, self._redis)

    async def close(self) -> None:
        await self._tasks.close()
        await self.snapshots.close()
        if self._redis is not None:
            await self._redis.close()
        if self._disk is not None:
            self._disk.close()

    def settle(self, epoch: int, *, leads: bool) -> None:
        """Clean up batches of epochs before `epoch`, which has begun. Called about once a second.

        It does not wait for the queued steps: it reads the store, and concerns only epochs that get no more batches.
        """
        self._tasks.start(self.cleanup.settle(epoch, leads=leads))

    def read_snapshot(self, effect: ReadSnapshot) -> None:
        self.snapshots.read(effect)

    def write_snapshot(self, effect: WriteSnapshot) -> None:
        self.snapshots.write(effect)

    def push(self, effect: PushBuffer) -> None:
        if self._disk is None:
            self._in_turn(lambda: self._push(effect))
            return
        # A write to the page cache takes less time than starting a task for it.
        try:
            self._disk.push(effect.epoch, effect.last_n, effect.batch)
        except Exception as error:  # any error: acknowledgements wait for this result
            self._tell_soon(BufferFailed(_reason(error)))
        else:
            self._tell_soon(BufferPushed(effect.last_n))

    def forget(self, effect: ForgetBuffer) -> None:
        if self._disk is None:
            self._in_turn(lambda: self._forget(effect))
            return
        try:
            self._disk.forget(effect.epoch, effect.last_n)
        except OSError as error:
            _log_untrimmed(error)

    def drain(self, effect: DrainBuffer) -> None:
        if self._disk is None:
            self._in_turn(lambda: self._drain(effect))
            return
        try:
            batches = self._drain_disk(self._disk, effect.before_epoch)
        except Exception as error:  # any error: a promotion waits for this result, and keeps its lease alive
            self._tell_soon(BufferFailed(_reason(error)))
        else:
            self._tell_soon(BufferDrained(tuple(batches)))

    def _tell_soon(self, event: NodeEvent) -> None:
        """The machine carries out the effect at this moment: it must not be entered again."""
        asyncio.get_running_loop().call_soon(self._tell, event)

    def _in_turn(self, step: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run steps one by one: a batch must not overtake its predecessor, nor be deleted before it is pushed."""
        self._steps.append(step)
        if not self._busy:
            self._busy = True
            self._tasks.start(self._run_steps())

    async def _run_steps(self) -> None:
        try:
            while self._steps:
                await self._steps.pop(0)()
        finally:
            self._busy = False

    async def _push(self, effect: PushBuffer) -> None:
        try:
            await self._in_redis().push(effect.epoch, effect.last_n, effect.batch)
        except Exception as error:  # any error: acknowledgements wait for this result
            self._tell(BufferFailed(_reason(error)))
        else:
            self._tell(BufferPushed(effect.last_n))

    async def _forget(self, effect: ForgetBuffer) -> None:
        try:
            await self._in_redis().forget(effect.epoch, effect.last_n)
        except (LeaseholdError, OSError) as error:
            _log_untrimmed(error)

    async def _drain(self, effect: DrainBuffer) -> None:
        try:
            batches = await self._in_redis().drain(effect.before_epoch)
        except Exception as error:  # any error: a promotion waits for this result, and keeps its lease alive
            self._tell(BufferFailed(_reason(error)))
        else:
            self._tell(BufferDrained(tuple(batches)))

    def _in_redis(self) -> RedisBuffer:
        assert self._redis is not None
        return self._redis

    @staticmethod
    def _drain_disk(disk: DiskBuffer, before_epoch: int) -> list[bytes]:
        """Batches of this node's earlier runs. The guardian has drained them, unless the whole host failed."""
        return [batch for epoch in disk.epochs() if epoch < before_epoch for _, batch in disk.read(epoch)]


def _log_untrimmed(error: Exception) -> None:
    log.info("could not trim the buffer: retrying later", error=str(error))


def _reason(error: Exception) -> str:
    """The message for people; unexpected errors include their type."""
    return str(error) if isinstance(error, LeaseholdError | OSError) else f"{type(error).__name__}: {error}"
