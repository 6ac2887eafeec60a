"""The buffer in Redis (or Valkey, or DragonflyDB): it survives the host, too.

A successor first *seals* the old epochs with one script, so that a later push of a deposed leader fails and the
buffer cannot grow while it is read (schedule 21, H6). Then it reads the batches.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import redis.asyncio
from redis.exceptions import RedisError

from leasehold.base.errors import PeerError, Unavailable
from leasehold.journal.batch import UnreadableBatch
from leasehold.node.buffer.disk import Quarantined

_NUMBER: Final = struct.Struct("<Q")

# KEYS: list of the epoch, seal, set of epochs, quarantine.  ARGV: epoch, frame, limits of batches and quarantine lists.
_PUSH: Final = """
local sealed = tonumber(redis.call('GET', KEYS[2]) or '0')
if tonumber(ARGV[1]) <= sealed then return 'sealed' end
if redis.call('LLEN', KEYS[1]) >= tonumber(ARGV[3]) then return 'full' end
if redis.call('HLEN', KEYS[4]) >= tonumber(ARGV[4]) then return 'aside' end
redis.call('RPUSH', KEYS[1], ARGV[2])
redis.call('ZADD', KEYS[3], ARGV[1], ARGV[1])
return 'pushed'
"""
# KEYS: list of the epoch.  ARGV: number of the oldest batches to delete.
_FORGET: Final = "redis.call('LTRIM', KEYS[1], ARGV[1], -1)"
# KEYS: seal, set of epochs.  ARGV: the highest epoch to seal.
_SEAL: Final = """
local sealed = tonumber(redis.call('GET', KEYS[1]) or '0')
if tonumber(ARGV[1]) > sealed then redis.call('SET', KEYS[1], ARGV[1]) end
return redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[1])
"""
BATCHES_MAX: Final = 10_000
ASIDE_EPOCHS_MAX: Final = 64


class Sealed(PeerError):
    """A successor has sealed this epoch: none of its writes can be acknowledged any more."""


class RedisBuffer:
    """Batches in Redis, one list per epoch."""

    def __init__(self, url: str, cluster: str, timeout_s: float = 1.0) -> None:
        self._redis: Any = redis.asyncio.from_url(  # its own types are partial
            url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s
        )
        self._root = f"leasehold:{{{cluster}}}:buffer"  # the braces keep all keys in one slot of a Redis cluster
        self._pushed: list[int] = []  # last record numbers of the batches in the current epoch's list
        self._epoch = -1

    def _list(self, epoch: int) -> str:
        return f"{self._root}:{epoch}"

    async def push(self, epoch: int, last_n: int, batch: bytes) -> None:
        if epoch != self._epoch:
            self._epoch, self._pushed = epoch, []
        keys = (self._list(epoch), f"{self._root}:sealed", f"{self._root}:epochs", f"{self._root}:aside")
        bounds = (BATCHES_MAX, ASIDE_EPOCHS_MAX)
        try:
            answer = await self._redis.eval(_PUSH, 4, *keys, epoch, _NUMBER.pack(last_n) + batch, *bounds)
        except RedisError as error:
            raise Unavailable(f"Redis: {error}") from None
        if answer == b"sealed":
            raise Sealed(f"epoch {epoch} is sealed: another node leads")
        if answer == b"full":
            raise Unavailable(f"the buffer in Redis is full ({BATCHES_MAX} batches): the store must commit some first")
        if answer == b"aside":
            raise Unavailable(
                f"Redis has quarantined batches of {ASIDE_EPOCHS_MAX} epochs: inspect them with "
                "`leasehold journal quarantined`, then delete them"
            )
        self._pushed.append(last_n)

    async def forget(self, epoch: int, last_n: int) -> None:
        if epoch != self._epoch:
            return
        done = sum(1 for n in self._pushed if n <= last_n)
        if done:
            del self._pushed[:done]
            try:
                await self._redis.eval(_FORGET, 1, self._list(epoch), done)
            except RedisError as error:
                raise Unavailable(f"Redis: {error}") from None

    async def drain(self, before_epoch: int) -> list[bytes]:
        """Seal every epoch before `before_epoch`; returns all their batches, by epoch and number."""
        return [batch for _, frames in await self.left(before_epoch) for _, batch in frames]

    async def left(self, before_epoch: int) -> list[tuple[int, list[tuple[int, bytes]]]]:
        """Seal every epoch before `before_epoch`; returns (last record's number, batch) in order, for each epoch."""
        try:
            epochs = await self._redis.eval(_SEAL, 2, f"{self._root}:sealed", f"{self._root}:epochs", before_epoch - 1)
            found = [(int(epoch), await self._redis.lrange(self._list(int(epoch)), 0, -1)) for epoch in epochs]
        except RedisError as error:
            raise Unavailable(f"Redis: {error}") from None
        return [(epoch, [_split(frame) for frame in frames]) for epoch, frames in found]

    async def quarantine(self, epoch: int, frames: Sequence[tuple[int, bytes]]) -> str:
        """Copy these batches of a finished epoch to a separate list, which never expires.

        Repeating it replaces the list with the same content.
        """
        name = f"{self._root}:aside:{epoch}"
        try:
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.delete(name)
                pipe.rpush(name, *(_NUMBER.pack(last_n) + batch for last_n, batch in frames))
                pipe.hset(f"{self._root}:aside", str(epoch), f"{len(frames)} {sum(len(raw) for _, raw in frames)}")
                await pipe.execute()
        except RedisError as error:
            raise Unavailable(f"Redis: {error}") from None
        return name

    async def read_quarantined(self) -> list[tuple[int, bytes]]:
        """All quarantined batches, by epoch and number: (last record's number, batch)."""
        try:
            epochs = sorted(int(epoch) for epoch in await self._redis.hkeys(f"{self._root}:aside"))
            lists = [await self._redis.lrange(f"{self._root}:aside:{epoch}", 0, -1) for epoch in epochs]
        except RedisError as error:
            raise Unavailable(f"Redis: {error}") from None
        return [_split(frame) for frames in lists for frame in frames]

    async def quarantined(self) -> Quarantined:
        """Number and size of quarantined batches, from a hash beside the lists; delete a list with its field."""
        try:
            noted = await self._redis.hvals(f"{self._root}:aside")
        except RedisError as error:
            raise Unavailable(f"Redis: {error}") from None
        pairs = [line.split() for line in noted]
        return Quarantined(sum(int(batches) for batches, _ in pairs), sum(int(size) for _, size in pairs))

    async def drop(self, epoch: int) -> None:
        """Delete the batches of an epoch: they are in the journal or quarantined."""
        try:
            await self._redis.delete(self._list(epoch))
            await self._redis.zrem(f"{self._root}:epochs", epoch)
        except RedisError as error:
            raise Unavailable(f"Redis: {error}") from None

    async def close(self) -> None:
        await self._redis.aclose()


def _split(frame: bytes) -> tuple[int, bytes]:
    """(last record's number, batch) of an entry. `UnreadableBatch` if it is too short to be one of ours."""
    if len(frame) < _NUMBER.size:
        raise UnreadableBatch(
            f"Redis: an entry of the buffer has {len(frame)} bytes and is not a batch: it was written by another "
            "program, which must use another database or key prefix"
        )
    return _NUMBER.unpack_from(frame)[0], frame[_NUMBER.size :]
