"""What is kept for the machine outside the store: snapshots on the disk, finished batches in the buffer."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from leasehold.base.errors import LeaseholdError, SettingError
from leasehold.coord.api import Coord
from leasehold.ha.effects import DrainBuffer, ForgetBuffer, PushBuffer, ReadSnapshot, WriteSnapshot
from leasehold.ha.events import BufferDrained, BufferFailed, BufferPushed, NodeEvent
from leasehold.ha.keys import Keys
from leasehold.node.buffer.disk import DiskBuffer
from leasehold.node.buffer.leftovers import Settling
from leasehold.node.settings import NodeConfig
from leasehold.node.worker.snapshot_files import SnapshotFiles
from leasehold.runtime.tasks import TaskSet

if TYPE_CHECKING:
    from leasehold.node.buffer.redis import RedisBuffer

log = structlog.get_logger("leasehold.buffer")
Tell = Callable[[NodeEvent], None]


class Keeping:
    """Implements `driver.Keeper`."""

    def __init__(self, config: NodeConfig, coord: Coord, tell: Tell, admin_of: Callable[[str], str]) -> None:
        folder = Path(config.node.data_dir)
        self._tell = tell
        self._tasks = TaskSet()
        self._line: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._busy = False
        self.snapshots = SnapshotFiles(folder / "snapshots", tell, admin_of)
        self._disk: DiskBuffer | None = None
        self._redis: RedisBuffer | None = None
        where = config.node.buffer
        if where == "disk":
            self._disk = DiskBuffer(folder / "buffer")
        elif where.startswith(("redis://", "rediss://", "unix://")):
            from leasehold.node.buffer.redis import RedisBuffer  # only who uses it waits for its import

            self._redis = RedisBuffer(where, config.node.cluster)
        else:
            raise SettingError(f"buffer = {where!r}: `disk` or redis://HOST:PORT is wanted")
        self.settling = Settling(coord, Keys(config.node.cluster, config.node.prefix), self._disk, self._redis)

    async def close(self) -> None:
        await self._tasks.close()
        await self.snapshots.close()
        if self._redis is not None:
            await self._redis.close()

    def settle(self, epoch: int, *, leads: bool) -> None:
        """About once a second: `epoch` has begun, so what earlier ones left in the buffer can be judged.

        Beside the line: it waits for the store, and concerns epochs to which nobody pushes any more.
        """
        self._tasks.start(self.settling.settle(epoch, leads=leads))

    def read_snapshot(self, effect: ReadSnapshot) -> None:
        self.snapshots.read(effect)

    def write_snapshot(self, effect: WriteSnapshot) -> None:
        self.snapshots.write(effect)

    def push(self, effect: PushBuffer) -> None:
        self._in_turn(lambda: self._push(effect))

    def forget(self, effect: ForgetBuffer) -> None:
        self._in_turn(lambda: self._forget(effect))

    def drain(self, effect: DrainBuffer) -> None:
        self._in_turn(lambda: self._drain(effect))

    def _in_turn(self, step: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """One after the other: a batch must not overtake its predecessor, nor be forgotten before it is pushed."""
        self._line.append(step)
        if not self._busy:
            self._busy = True
            self._tasks.start(self._walk())

    async def _walk(self) -> None:
        try:
            while self._line:
                await self._line.pop(0)()
        finally:
            self._busy = False

    async def _push(self, effect: PushBuffer) -> None:
        try:
            if self._disk is not None:
                self._disk.push(effect.epoch, effect.last_n, effect.batch)
            elif self._redis is not None:
                await self._redis.push(effect.epoch, effect.last_n, effect.batch)
        except Exception as error:  # whatever it is: acknowledgements wait for this answer
            self._tell(BufferFailed(_told(error)))
        else:
            self._tell(BufferPushed(effect.last_n))

    async def _forget(self, effect: ForgetBuffer) -> None:
        try:
            if self._disk is not None:
                self._disk.forget(effect.epoch, effect.last_n)
            elif self._redis is not None:
                await self._redis.forget(effect.epoch, effect.last_n)
        except (LeaseholdError, OSError) as error:
            log.info("the buffer could not be trimmed: it will be later", error=str(error))

    async def _drain(self, effect: DrainBuffer) -> None:
        try:
            if self._redis is not None:
                batches = await self._redis.drain(effect.before_epoch)
            else:
                batches = self._drain_disk(effect.before_epoch)
        except Exception as error:  # as above: a promotion waits, and keeps its lease alive meanwhile
            self._tell(BufferFailed(_told(error)))
        else:
            self._tell(BufferDrained(tuple(batches)))

    def _drain_disk(self, before_epoch: int) -> list[bytes]:
        """What this node's own earlier runs left. The guardian has drained it, unless the whole host went down."""
        if self._disk is None:
            return []
        return [batch for epoch in self._disk.epochs() if epoch < before_epoch for _, batch in self._disk.read(epoch)]


def _told(error: Exception) -> str:
    """For people: what we expect has a sentence, of anything else the kind is what helps."""
    return str(error) if isinstance(error, LeaseholdError | OSError) else f"{type(error).__name__}: {error}"
