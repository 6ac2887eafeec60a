"""Redis (or Valkey, DragonflyDB) behind the authority. Durability depends on the configuration of that server.

Each operation is one script, so tokens are compared atomically with the write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from leasehold.base.errors import Unavailable
from leasehold.cache.errors import TokenRefused
from leasehold.cache.model import Version
from leasehold.cache.stores.api import Kept, Opened

if TYPE_CHECKING:
    from redis.asyncio import Redis

_OPEN: Final = """
local s = redis.call('HMGET', KEYS[1], 'epoch', 'term_ms', 'clean')
local epoch, before, clean = tonumber(s[1] or 0) + 1, tonumber(s[2] or 0), s[3] ~= '0'
redis.call('HSET', KEYS[1], 'epoch', epoch, 'term_ms', math.max(before, tonumber(ARGV[1])), 'clean', 0)
for _, tomb in ipairs(redis.call('SMEMBERS', KEYS[2])) do redis.call('DEL', tomb) end
redis.call('DEL', KEYS[2])
return {epoch, clean and 0 or before}
"""
_STORE: Final = """
local epoch, n = tonumber(ARGV[1]), tonumber(ARGV[2])
if tonumber(redis.call('HGET', KEYS[1], 'epoch') or 0) ~= epoch then return 0 end
local t = redis.call('HMGET', KEYS[2], 'e', 'n')
local e0, n0 = tonumber(t[1] or 0), tonumber(t[2] or 0)
if e0 > epoch or (e0 == epoch and n0 >= n) then return 0 end
redis.call('DEL', KEYS[2])
redis.call('HSET', KEYS[2], 'e', epoch, 'n', n)
if ARGV[3] == '1' then redis.call('HSET', KEYS[2], 'v', ARGV[4]) redis.call('SREM', KEYS[3], KEYS[2])
else redis.call('SADD', KEYS[3], KEYS[2]) end
return 1
"""
_SET: Final = """
if tonumber(redis.call('HGET', KEYS[1], 'epoch') or 0) ~= tonumber(ARGV[1]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
return 1
"""


class RedisStore:
    """Values under `prefix` of a Redis; its connection is opened from `url` and closed with the store."""

    is_memory = False

    def __init__(self, url: str, prefix: bytes = b"leasehold:cache:", *, timeout_s: float = 2.0) -> None:
        from redis.asyncio import Redis  # a slow import, needed by few

        self._url = url
        self._redis: Redis = Redis.from_url(url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s)
        self._state, self._tombs, self._values = prefix + b"state", prefix + b"tombs", prefix + b"v:"
        self._epoch = 0

    async def open(self, term_ms: int) -> Opened:
        from redis.exceptions import RedisError

        try:
            epoch, before_ms = await self._eval(_OPEN, [self._state, self._tombs], [term_ms])
        except RedisError as error:  # the campaign of `run_for_term` retries on Unavailable
            where = self._url.rpartition("@")[2].rpartition("://")[2]  # without a password
            raise Unavailable(f"the Redis behind the cache, {where}, cannot be opened: {error}") from None
        self._epoch = int(epoch)
        return Opened(int(epoch), int(before_ms))

    async def load(self, key: bytes) -> Kept | None:
        request: Any = self._redis.hmget(self._values + key, ["v", "e", "n"])
        value, epoch, n = await request
        return None if value is None else Kept(value, Version(int(epoch), int(n)))

    async def store(self, key: bytes, value: bytes | None, token: Version) -> None:
        arguments = [token.epoch, token.n, 0 if value is None else 1, value or b""]
        if await self._eval(_STORE, [self._state, self._values + key, self._tombs], arguments) != 1:
            raise TokenRefused(f"Redis has a newer token than {token}, or another authority has begun a term")

    async def settle_term(self, term_ms: int) -> None:
        await self._set("term_ms", term_ms)

    async def mark_clean(self) -> None:
        await self._set("clean", 1)

    async def close(self) -> None:
        await self._redis.aclose()

    async def _set(self, field: str, value: int) -> None:
        if await self._eval(_SET, [self._state], [self._epoch, field, value]) != 1:
            raise TokenRefused("another authority has begun a term")

    async def _eval(self, script: str, keys: list[bytes], arguments: list[Any]) -> Any:
        answer: Any = self._redis.eval(script, len(keys), *keys, *arguments)
        return await answer
