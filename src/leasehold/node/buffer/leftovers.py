"""Clean up batches that earlier epochs left in the buffer.

While an epoch is the newest in the journal, its remaining batches may still be added: by the guardian under that
epoch's fence, or by a promotion. After a later epoch has begun, they cannot. A batch that is in the journal, byte for
byte, is then deleted from the buffer. Any other batch was acknowledged but is lost to the index: that is logged, and
the batch is quarantined for an operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import structlog

from leasehold.base.errors import LeaseholdError
from leasehold.coord.api import Coord
from leasehold.ha.keys import Keys
from leasehold.journal.batch import UnreadableBatch, decode_explicit
from leasehold.journal.fenced_writer import slot_key
from leasehold.node.buffer.disk import DiskBuffer, Quarantined

if TYPE_CHECKING:
    from leasehold.node.buffer.redis import RedisBuffer

log = structlog.get_logger("leasehold.buffer")

READ_TIMEOUT_S: Final = 2.0
Frames: TypeAlias = Sequence[tuple[int, bytes]]  # (last record's number, batch)


async def outside_journal(coord: Coord, keys: Keys, frames: Frames) -> list[tuple[int, bytes]]:
    """The batches that are not in the journal, byte for byte."""
    return [frame for frame in frames if not await _in_journal(coord, keys, frame[1])]


async def _in_journal(coord: Coord, keys: Keys, raw: bytes) -> bool:
    try:
        first_n = decode_explicit(raw).first_n
    except UnreadableBatch:
        return False
    kv = await coord.get_one(slot_key(keys.explicit, first_n), timeout_s=READ_TIMEOUT_S)
    return kv is not None and kv.value == raw


class BufferCleanup:
    """Deletes or quarantines leftover batches. `settle` may be called often: it is cheap if there are none."""

    def __init__(self, coord: Coord, keys: Keys, disk: DiskBuffer | None, redis: RedisBuffer | None) -> None:
        self._coord = coord
        self._keys = keys
        self._disk = disk
        self._redis = redis
        self._sealed_to = 0  # Redis: every epoch before this one is cleaned up
        self._busy = False
        self._logged = ""
        self.quarantined = disk.quarantined() if disk is not None else Quarantined()

    def waiting_bytes(self, led_epoch: int | None) -> int:
        """Size of acknowledged batches on disk of all epochs but the one that this node leads."""
        return self._disk.bytes_left(led_epoch) if self._disk is not None else 0

    async def settle(self, epoch: int, *, leads: bool) -> None:
        """Clean up all epochs before `epoch`. Call it only when the journal has a record of `epoch`."""
        if self._busy:
            return
        self._busy = True
        try:
            if self._disk is not None:
                await self._settle_disk(self._disk, epoch)
            elif self._redis is not None and leads and epoch > self._sealed_to:
                await self._settle_redis(self._redis, epoch)
            self._logged = ""
        except (LeaseholdError, OSError) as error:
            if str(error) != self._logged:  # once, not every second
                self._logged = str(error)
                log.info("leftover batches in the buffer cannot be checked yet", error=self._logged)
        finally:
            self._busy = False

    async def _settle_disk(self, disk: DiskBuffer, epoch: int) -> None:
        for old in disk.epochs():
            if old < epoch:
                outside = await outside_journal(self._coord, self._keys, list(disk.read(old)))
                if outside:
                    _log_quarantined(old, outside, str(disk.quarantine(old, outside)))
                disk.drop(old)
        self.quarantined = disk.quarantined()

    async def _settle_redis(self, redis: RedisBuffer, epoch: int) -> None:
        for old, frames in await redis.left(epoch):
            outside = await outside_journal(self._coord, self._keys, frames)
            if outside:
                _log_quarantined(old, outside, await redis.quarantine(old, outside))
            await redis.drop(old)
        self.quarantined = await redis.quarantined()
        self._sealed_to = epoch


def _log_quarantined(epoch: int, outside: Frames, where: str) -> None:
    log.error(
        "acknowledged batches are not in the journal, and another epoch has begun: they are quarantined",
        epoch=epoch,
        batches=len(outside),
        last_record=outside[-1][0],
        kept_in=where,
    )
