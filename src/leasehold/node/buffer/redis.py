"""The buffer in Redis (or Valkey, or DragonflyDB): it outlives the host too.

A successor first *seals* the old epochs with one script: a push of a deposed leader that comes later fails, and
cannot grow behind its back (schedule 21, H6). Then it reads what is there.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import redis.asyncio
from redis.exceptions import RedisError

from leasehold.base.errors import PeerError, Unavailable

_NUMBER: Final = struct.Struct("<Q")

# KEYS: list of the epoch, seal, set of epochs.  ARGV: epoch, frame, bytes at most.
_PUSH: Final = """
local sealed = tonumber(redis.call('GET', KEYS[2]) or '0')
if tonumber(ARGV[1]) <= sealed then return 'sealed' end
if redis.call('LLEN', KEYS[1]) >= tonumber(ARGV[3]) then return 'full' end
redis.call('RPUSH', KEYS[1], ARGV[2])
redis.call('ZADD', KEYS[3], ARGV[1], ARGV[1])
return 'pushed'
"""
# KEYS: list of the epoch.  ARGV: how many of the oldest batches to let go.
_FORGET: Final = "redis.call('LTRIM', KEYS[1], ARGV[1], -1)"
# KEYS: seal, set of epochs.  ARGV: the highest epoch to seal.
_SEAL: Final = """
local sealed = tonumber(redis.call('GET', KEYS[1]) or '0')
if tonumber(ARGV[1]) > sealed then redis.call('SET', KEYS[1], ARGV[1]) end
return redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[1])
"""
BATCHES_MAX: Final = 10_000


class Sealed(PeerError):
    """A successor has sealed this epoch: nothing of it can be acknowledged any more."""


class RedisBuffer:
    """Batches by epoch in lists of Redis."""

    def __init__(self, url: str, cluster: str, timeout_s: float = 1.0) -> None:
        self._redis: Any = redis.asyncio.from_url(  # its own types are partial
            url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s
        )
        self._root = f"leasehold:{{{cluster}}}:buffer"  # the braces keep all keys in one slot of a Redis cluster
        self._pushed: list[int] = []  # last numbers of the batches in the present epoch's list
        self._epoch = -1

    def _list(self, epoch: int) -> str:
        return f"{self._root}:{epoch}"

    async def push(self, epoch: int, last_n: int, batch: bytes) -> None:
        if epoch != self._epoch:
            self._epoch, self._pushed = epoch, []
        keys = (self._list(epoch), f"{self._root}:sealed", f"{self._root}:epochs")
        try:
            answer = await self._redis.eval(_PUSH, 3, *keys, epoch, _NUMBER.pack(last_n) + batch, BATCHES_MAX)
        except RedisError as error:
            raise Unavailable(f"Redis: {error}") from None
        if answer == b"sealed":
            raise Sealed(f"epoch {epoch} is sealed: another node leads")
        if answer == b"full":
            raise Unavailable(f"Redis holds {BATCHES_MAX} batches already: the store has to take some first")
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
        """Seal every epoch before, then all their batches, by epoch and number."""
        try:
            epochs = await self._redis.eval(_SEAL, 2, f"{self._root}:sealed", f"{self._root}:epochs", before_epoch - 1)
            frames = [frame for epoch in epochs for frame in await self._redis.lrange(self._list(int(epoch)), 0, -1)]
        except RedisError as error:
            raise Unavailable(f"Redis: {error}") from None
        return [frame[_NUMBER.size :] for frame in frames]

    async def drop_before(self, epoch: int) -> None:
        """The old epochs' batches are attached or set aside: let them go."""
        try:
            old = await self._redis.zrangebyscore(f"{self._root}:epochs", "-inf", f"({epoch}")
            for each in old:
                await self._redis.delete(self._list(int(each)))
            await self._redis.zremrangebyscore(f"{self._root}:epochs", "-inf", f"({epoch}")
        except RedisError as error:
            raise Unavailable(f"Redis: {error}") from None

    async def close(self) -> None:
        await self._redis.aclose()
