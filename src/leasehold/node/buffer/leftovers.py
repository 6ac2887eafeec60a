"""What becomes of the batches that earlier epochs left in the buffer, once nothing more of them can be attached.

While an epoch is the newest in the journal, its rest may still be attached: by the guardian under its own fence, or
by a promotion. As soon as a later epoch has begun, it cannot: what stands in the journal byte for byte leaves the
buffer, and what does not was acknowledged and is lost to the index. That is said, and it is set aside for a person.
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
from leasehold.node.buffer.disk import Aside, DiskBuffer

if TYPE_CHECKING:
    from leasehold.node.buffer.redis import RedisBuffer

log = structlog.get_logger("leasehold.buffer")

READ_TIMEOUT_S: Final = 2.0
Frames: TypeAlias = Sequence[tuple[int, bytes]]  # (last record's number, batch)


async def outside_journal(coord: Coord, keys: Keys, frames: Frames) -> list[tuple[int, bytes]]:
    """Those batches that do not stand in the journal, byte for byte."""
    return [frame for frame in frames if not await _stands(coord, keys, frame[1])]


async def _stands(coord: Coord, keys: Keys, raw: bytes) -> bool:
    try:
        first_n = decode_explicit(raw).first_n
    except UnreadableBatch:
        return False
    kv = await coord.get_one(slot_key(keys.explicit, first_n), timeout_s=READ_TIMEOUT_S)
    return kv is not None and kv.value == raw


class Settling:
    """`settle` may be called often: it does nothing while nothing is left. The rest is for the status."""

    def __init__(self, coord: Coord, keys: Keys, disk: DiskBuffer | None, redis: RedisBuffer | None) -> None:
        self._coord = coord
        self._keys = keys
        self._disk = disk
        self._redis = redis
        self._sealed_to = 0  # Redis: everything before this epoch is settled
        self._busy = False
        self._said = ""
        self.aside = disk.aside() if disk is not None else Aside()

    def waiting_bytes(self, led_epoch: int | None) -> int:
        """What runs of this node have acknowledged and left on the disk, other than in the epoch that it leads now."""
        return self._disk.bytes_left(led_epoch) if self._disk is not None else 0

    async def settle(self, epoch: int, *, leads: bool) -> None:
        """A record of `epoch` stands in the journal: judge what every epoch before it has left here."""
        if self._busy:
            return
        self._busy = True
        try:
            if self._disk is not None:
                await self._settle_disk(self._disk, epoch)
            elif self._redis is not None and leads and epoch > self._sealed_to:
                await self._settle_redis(self._redis, epoch)
            self._said = ""
        except (LeaseholdError, OSError) as error:
            if str(error) != self._said:  # once, not every second
                self._said = str(error)
                log.info("what is left in the buffer cannot be judged yet", error=self._said)
        finally:
            self._busy = False

    async def _settle_disk(self, disk: DiskBuffer, epoch: int) -> None:
        for old in disk.epochs():
            if old < epoch:
                outside = await outside_journal(self._coord, self._keys, list(disk.read(old)))
                if outside:
                    _say(old, outside, str(disk.quarantined_records(old, outside)))
                disk.drop(old)
        self.aside = disk.aside()

    async def _settle_redis(self, redis: RedisBuffer, epoch: int) -> None:
        for old, frames in await redis.left(epoch):
            outside = await outside_journal(self._coord, self._keys, frames)
            if outside:
                _say(old, outside, await redis.quarantined_records(old, outside))
            await redis.drop(old)
        self.aside = await redis.aside()
        self._sealed_to = epoch


def _say(epoch: int, outside: Frames, where: str) -> None:
    log.error(
        "acknowledged batches are not in the journal, and another epoch has begun: they are set aside",
        epoch=epoch,
        batches=len(outside),
        last_record=outside[-1][0],
        kept_in=where,
    )
