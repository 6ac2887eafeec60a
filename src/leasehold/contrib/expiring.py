"""Values that expire, on a cache that has no expiry of its own: the common part of the cache adapters.

A value is stored with the time of its end. A reader treats an expired one as absent. An index of the keys, in buckets
that are cached like everything else, makes `clear` and the removal of the oldest entries possible. A key is written to
the index before its value, so no value is forgotten. Times are those of the hosts' wall clocks.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import struct
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import msgspec

from leasehold.base.errors import Unavailable
from leasehold.cache import ABSENT, Client, Conflict, Value, Version

_END: Final = struct.Struct(">d")
KEYS_PER_BUCKET: Final = 512
BUCKETS_MAX: Final = 1_024
KEY_BYTES_MAX: Final = 512  # a longer key is stored under its hash
ATTEMPTS_MAX: Final = 100  # of one change, while other clients change the same key
WRITES_TOGETHER: Final = 64
_decode = msgspec.msgpack.Decoder(list[bytes]).decode
_encode = msgspec.msgpack.encode


def packed(value: bytes, end_s: float | None) -> bytes:
    """A value with the time of its end (None: it does not expire)."""
    return _END.pack(math.inf if end_s is None else end_s) + value


def unpacked(stored: bytes | None) -> bytes | None:
    """The value, or None if there is none or it has expired."""
    if not stored or _END.unpack_from(stored)[0] <= time.time():
        return None
    return stored[_END.size :]


def end_of(stored: bytes) -> float | None:
    """When a stored value ends."""
    end_s: float = _END.unpack_from(stored)[0]
    return None if end_s == math.inf else end_s


class Bounds(msgspec.Struct, frozen=True):
    """How many entries there may be, and which part of them is removed when there are more (0: all)."""

    entries_max: int = 10_000
    cull_frequency: int = 3


class ExpiringEntries:
    """The entries under one name. `client` gives the cache client: it may be replaced after `close`."""

    def __init__(self, client: Callable[[], Client], name: str) -> None:
        self._client = client
        self._name = name.encode()
        self._buckets = 0

    def stored_key(self, key: str) -> bytes:
        """The key of a value in the cache."""
        raw = key.encode(errors="surrogatepass")
        if len(raw) > KEY_BYTES_MAX:
            raw = b"sha256:" + hashlib.sha256(raw).hexdigest().encode()
        return self._name + b"\0v\0" + raw

    # --- reading ---

    async def get(self, key: str) -> bytes | None:
        return unpacked(await self._client().get(self.stored_key(key)))

    async def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        stored = {key: self.stored_key(key) for key in keys}
        found = await self._client().get_many(stored.values())
        values = {key: unpacked(found[at]) for key, at in stored.items()}
        return {key: value for key, value in values.items() if value is not None}

    async def get_versioned(self, key: str) -> tuple[bytes | None, Version]:
        """The value and its version, for `set(expect=)`."""
        found = await self._client().get_versioned(self.stored_key(key))
        return unpacked(found.value), found.version

    # --- writing ---

    async def set(
        self, key: str, value: bytes, end_s: float | None, bounds: Bounds, *, expect: Version | None = None
    ) -> None:
        """Write a value; with `expect`, `Conflict` unless the key has that version."""
        at = self.stored_key(key)
        for _ in range(ATTEMPTS_MAX):
            await self._enter(at, bounds)
            written = await self._client().put(at, packed(value, end_s), expect=expect)
            # Another client may have removed the key from the index just before the value was written.
            if at in _keys(await self._client().get(self._bucket_of(at, await self._layout(bounds)))):
                return
            expect = None if expect is None else written
        raise Unavailable(
            f"the entry {key!r} was removed by other clients in {ATTEMPTS_MAX} attempts: too many entries"
        )

    async def add(self, key: str, value: bytes, end_s: float | None, bounds: Bounds) -> bool:
        """Write a value unless the key has one. Returns whether it was written."""
        while True:
            found, version = await self.get_versioned(key)
            if found is not None:
                return False
            try:
                await self.set(key, value, end_s, bounds, expect=version)
                return True
            except Conflict:
                continue

    async def change(self, key: str, function: Callable[[bytes, float | None], bytes]) -> bool:
        """Replace a stored value in one atomic step. Returns False if the key has none.

        `function` gets the value and its end, and returns the new value, packed.
        """
        client, at = self._client(), self.stored_key(key)
        for _ in range(ATTEMPTS_MAX):
            found = await client.get_versioned(at)
            value = unpacked(found.value)
            if value is None or found.value is None:
                return False
            try:
                await client.put(at, function(value, end_of(found.value)), expect=found.version)
                return True
            except Conflict:
                await asyncio.sleep(0)
        raise Unavailable(f"other clients changed the entry {key!r} in {ATTEMPTS_MAX} attempts: repeat later")

    async def touch(self, key: str, end_s: float | None) -> bool:
        """Change when a value ends. Returns False if the key has none."""
        return await self.change(key, lambda value, _: packed(value, end_s))

    async def delete(self, key: str, bounds: Bounds, *, expect: Version | None = None) -> bool:
        """Delete a value. Returns whether there was one; with `expect`, `Conflict` unless it has that version."""
        client, at = self._client(), self.stored_key(key)
        there = unpacked(await client.get(at)) is not None
        await client.delete(at, expect=expect)
        await self._edit(self._bucket_of(at, await self._layout(bounds)), lambda keys: [k for k in keys if k != at])
        return there

    async def clear(self, bounds: Bounds, prefix: str = "") -> None:
        """Delete all entries, or those whose key begins with `prefix`. (Keys stored under a hash have no prefix.)"""
        wanted = self._name + b"\0v\0" + prefix.encode()
        for bucket in self._all_buckets(await self._layout(bounds)):
            for _ in range(ATTEMPTS_MAX):
                found = await self._client().get_versioned(bucket)
                gone = [key for key in _keys(found.value) if key.startswith(wanted)]
                await together(self._client().delete(key) for key in gone)
                kept = [key for key in _keys(found.value) if not key.startswith(wanted)]
                if not gone or await self._replace(bucket, found, kept):
                    break

    # --- the index ---

    async def _layout(self, bounds: Bounds) -> int:
        """The number of buckets. The first client chooses it; later ones follow, whatever their bounds."""
        if not self._buckets:
            key, client = self._name + b"\0buckets", self._client()
            wanted = str(min(max(1, bounds.entries_max // KEYS_PER_BUCKET), BUCKETS_MAX)).encode()
            found = await client.get(key)
            if found is None:
                try:
                    await client.put(key, wanted, expect=ABSENT)
                    found = wanted
                except Conflict:
                    found = await client.get(key)
            self._buckets = int(found or wanted)
        return self._buckets

    def _all_buckets(self, count: int) -> list[bytes]:
        return [self._name + b"\0i\0" + str(number).encode() for number in range(count)]

    def _bucket_of(self, at: bytes, count: int) -> bytes:
        number = int.from_bytes(hashlib.blake2b(at, digest_size=8).digest(), "big") % count
        return self._name + b"\0i\0" + str(number).encode()

    async def _enter(self, at: bytes, bounds: Bounds) -> None:
        """Enter a key into the index; remove the oldest entries if there are too many."""
        count = await self._layout(bounds)
        bucket = self._bucket_of(at, count)
        if at in _keys(await self._client().get(bucket)):
            return
        room = bounds.entries_max / count
        removed: list[bytes] = []

        async def entered(keys: list[bytes]) -> list[bytes]:
            removed.clear()
            if at in keys:
                return keys
            if len(keys) >= room:
                keys = await self._living(keys)
            if len(keys) >= room:
                part = len(keys) // bounds.cull_frequency if bounds.cull_frequency else len(keys)
                removed.extend(keys[:part])
                keys = keys[part:]
            return [*keys, at]

        await self._edit_async(bucket, entered)
        await together(self._client().delete(key) for key in removed)

    async def _living(self, keys: list[bytes]) -> list[bytes]:
        """The keys whose values have not expired; the others are deleted."""
        found = await self._client().get_many(keys)
        expired = [key for key in keys if unpacked(found[key]) is None]
        await together(self._client().delete(key) for key in expired if found[key] is not None)
        return [key for key in keys if unpacked(found[key]) is not None]

    async def _edit(self, bucket: bytes, function: Callable[[list[bytes]], list[bytes]]) -> None:
        async def edited(keys: list[bytes]) -> list[bytes]:
            return function(keys)

        await self._edit_async(bucket, edited)

    async def _edit_async(self, bucket: bytes, function: Callable[[list[bytes]], Awaitable[list[bytes]]]) -> None:
        for _ in range(ATTEMPTS_MAX):
            found = await self._client().get_versioned(bucket)
            keys = _keys(found.value)
            edited = await function(keys)
            if edited == keys or await self._replace(bucket, found, edited):
                return
            await asyncio.sleep(0)
        raise Unavailable(f"other clients changed the index in {ATTEMPTS_MAX} attempts: repeat later")

    async def _replace(self, bucket: bytes, found: Value, keys: list[bytes]) -> bool:
        try:
            await self._client().put(bucket, _encode(keys), expect=found.version)
        except Conflict:
            return False
        return True


def _keys(stored: bytes | None) -> list[bytes]:
    return _decode(stored) if stored else []


async def together(writes: Iterable[Awaitable[object]]) -> None:
    """Await writes, several at a time: the cache calls their holders back together."""
    waiting: list[Awaitable[object]] = []
    for write in writes:
        waiting.append(write)
        if len(waiting) == WRITES_TOGETHER:
            await asyncio.gather(*waiting)
            waiting = []
    await asyncio.gather(*waiting)
