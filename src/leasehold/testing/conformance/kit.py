"""Helpers for the conformance cases."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import TypeVar

from leasehold.base.errors import LeaseholdError
from leasehold.coord.api import Coord, WatchStream
from leasehold.mvcc.errors import Code, StoreError
from leasehold.mvcc.model import Event, EventType, KeyValue, RangeResult, prefix_end

PATIENCE_S = 60.0  # only ends a hang; not a measurement


class NotConforming(LeaseholdError, AssertionError):
    """A back end behaves differently from etcd."""


Body = TypeVar("Body", bound=Callable[..., Awaitable[None]])


def slow(body: Body) -> Body:
    """Decorator for a case that waits for time to pass: such cases may run in parallel."""
    body.__dict__["slow"] = True
    return body


class Kit:
    """A client with its own key prefix, and checks that report the expected value."""

    def __init__(self, coord: Coord) -> None:
        self.coord = coord
        self.prefix = f"/conformance/{uuid.uuid4().hex}/".encode()
        self.end = prefix_end(self.prefix)

    def key(self, name: str) -> bytes:
        return self.prefix + name.encode()

    async def put(self, name: str, value: str = "", *, lease: int = 0) -> int:
        """Write a key below the prefix; returns its revision."""
        return (await self.coord.put(self.key(name), value.encode(), lease=lease)).header.revision

    async def fill(self, *names: str) -> list[int]:
        return [await self.put(name, f"value of {name}") for name in names]

    async def one(self, name: str) -> KeyValue:
        kv = await self.coord.get_one(self.key(name))
        if kv is None:
            raise NotConforming(f"{name} is not there")
        return kv

    async def exists(self, name: str) -> bool:
        return await self.coord.get_one(self.key(name)) is not None

    def names(self, result: RangeResult) -> list[str]:
        return [kv.key.removeprefix(self.prefix).decode(errors="backslashreplace") for kv in result.kvs]

    async def refuses(self, call: Awaitable[object], message: str, code: Code) -> StoreError:
        """Check that the call fails with exactly this message and code."""
        try:
            answer = await call
        except StoreError as error:
            expect((error.message, error.code), (message, code))
            return error
        raise NotConforming(f"expected {message!r}, got the answer {answer!r}")

    async def events(self, stream: WatchStream, count: int) -> list[Event]:
        """The next `count` events."""
        found: list[Event] = []
        async with asyncio.timeout(PATIENCE_S):
            while len(found) < count:
                found += (await anext(aiter(stream))).events
        expect(len(found), count)
        return found

    def brief(self, events: list[Event]) -> list[str]:
        """Events in short form: `+name` for a put, `-name` for a deletion."""
        sign = {EventType.PUT: "+", EventType.DELETE: "-"}
        return [sign[event.type] + event.kv.key.removeprefix(self.prefix).decode() for event in events]

    async def becomes(self, condition: Callable[[], Awaitable[bool]], what: str) -> None:
        """Wait until `condition` holds."""
        end_ms = self.coord.now_ms() + PATIENCE_S * 1_000
        while not await condition():
            if self.coord.now_ms() > end_ms:
                raise NotConforming(f"did not happen within {PATIENCE_S:g} s: {what}")
            await asyncio.sleep(0.05)


def expect(found: object, wanted: object, what: str = "") -> None:
    if found != wanted:
        raise NotConforming(f"{what + ': ' if what else ''}expected {wanted!r}, got {found!r}")
