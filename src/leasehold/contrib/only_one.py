"""`only_one`: a function or a block that runs in one process of a fleet at a time.

    @only_one("nightly", store="etcd://127.0.0.1:2379", at_most_every_s=3600)
    def nightly() -> None:
        write_report(fence=fencing_token())

    with only_one("migration", wait_s=None):
        migrate()

It works for plain functions and coroutine functions, in `with` and in `async with`. A coroutine is cancelled before
its lease can expire, and the caller gets `SessionLost`. A thread cannot be interrupted: a plain function gets
`SessionLost` at its end, and should send `fencing_token()` with what it writes.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, ExitStack
from functools import wraps
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, overload

import leasehold
import leasehold.sync
from leasehold.base.errors import InvalidArgument
from leasehold.concurrency import Held, Locked, Mutex, Session, WaitTimeout
from leasehold.concurrency import sync as blocking
from leasehold.contrib.fencing import fenced
from leasehold.contrib.singleton import DEFAULT_TTL_S, PREFIX, checked_name, checked_ttl, store_url
from leasehold.mvcc.model import Compare, Put
from leasehold.runtime.log import get_logger

log = get_logger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class TooSoon(Locked):
    """Another instance ran it less than `at_most_every_s` ago."""


class only_one:  # noqa: N801 - a decorator and a context manager, which are written in lower case
    """Hold `name` in the fleet while the function or the block runs.

    `wait_s` is how long to wait for the name: 0 (the default) not at all, None without limit. If the name is not free,
    a decorated function is not called and returns None; a block raises `Locked` or `WaitTimeout`.

    `at_most_every_s`: do not run if another instance began less than this ago. Give it to functions that every host's
    own timer starts, because these timers do not fire at exactly the same time.
    """

    def __init__(
        self,
        name: str,
        *,
        store: str | None = None,
        ttl_s: int = DEFAULT_TTL_S,
        wait_s: float | None = 0,
        at_most_every_s: float = 0,
    ) -> None:
        self._name = checked_name(name)
        self._store = store
        self._ttl_s = checked_ttl(ttl_s)
        if at_most_every_s < 0 or (wait_s is not None and wait_s < 0):
            raise InvalidArgument("wait_s and at_most_every_s are 0 or more seconds")
        self._wait_s = wait_s
        self._every_s = at_most_every_s
        self._prefix = f"{PREFIX}{self._name}/lock"
        self._began = f"{PREFIX}{self._name}/began".encode()
        self._blocks: dict[object, list[ExitStack]] = {}  # open `with` blocks by thread
        self._async_blocks: dict[object, list[AsyncExitStack]] = {}  # open `async with` blocks by task

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T | None]]: ...

    @overload
    def __call__(self, function: Callable[P, T]) -> Callable[P, T | None]: ...

    def __call__(self, function: Callable[P, Any]) -> Callable[P, Any]:
        """Decorate a plain function or a coroutine function."""
        if inspect.iscoroutinefunction(function):
            return self._around_coroutine(function)

        @wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> Any:
            with ExitStack() as stack:
                try:
                    self._enter(stack)
                except (Locked, WaitTimeout) as reason:
                    self._skipped(reason)
                    return None
                return function(*args, **kwargs)

        return run

    def _around_coroutine(self, function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T | None]]:
        @wraps(function)
        async def run(*args: P.args, **kwargs: P.kwargs) -> T | None:
            async with AsyncExitStack() as stack:
                try:
                    await self._aenter(stack)
                except (Locked, WaitTimeout) as reason:
                    self._skipped(reason)
                    return None
                return await function(*args, **kwargs)
            return None  # not reached: the stack swallows no exception

        return run

    def __enter__(self) -> Held:
        with ExitStack() as stack:
            held = self._enter(stack)
            self._blocks.setdefault(threading.get_ident(), []).append(stack.pop_all())
        return held

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _pop(self._blocks, threading.get_ident()).__exit__(kind, error, trace)

    async def __aenter__(self) -> Held:
        async with AsyncExitStack() as stack:
            held = await self._aenter(stack)
            self._async_blocks.setdefault(asyncio.current_task(), []).append(stack.pop_all())
        return held

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _pop(self._async_blocks, asyncio.current_task()).__aexit__(kind, error, trace)

    def _enter(self, stack: ExitStack) -> Held:
        store = stack.enter_context(leasehold.sync.connect(store_url(self._store)))
        session = stack.enter_context(blocking.Session.open(store, ttl_s=self._ttl_s))
        mutex = blocking.Mutex(session, self._prefix)
        held = mutex.try_lock() if self._wait_s == 0 else mutex.lock(timeout_s=self._wait_s)

        def body_succeeded(kind: type[BaseException] | None, *_: object) -> None:
            if kind is None:
                session.check()  # the caller must learn that the name may have been lost

        stack.push(body_succeeded)  # closing the session releases the lock
        if self._every_s:
            kv = store.get_one(self._began)
            compare, put = self._begin(held, kv.value if kv else None)
            store.txn(compare, put)
        stack.enter_context(fenced(held.token))
        return held

    async def _aenter(self, stack: AsyncExitStack) -> Held:
        coord = await stack.enter_async_context(await leasehold.connect(store_url(self._store)))
        session = await stack.enter_async_context(Session.open(coord, ttl_s=self._ttl_s))
        mutex = Mutex(session, self._prefix)
        if self._wait_s == 0:
            await mutex.try_lock()  # `hold` finds it held, and the end of the session releases it
        held = await stack.enter_async_context(mutex.hold(timeout_s=self._wait_s))
        if self._every_s:
            kv = await coord.get_one(self._began)
            compare, put = self._begin(held, kv.value if kv else None)
            await coord.txn(compare, put)
        stack.enter_context(fenced(held.token))
        return held

    def _begin(self, held: Held, last: bytes | None) -> tuple[list[Compare], list[Put]]:
        """The transaction that records this run, or `TooSoon`. The lock excludes other writers of the record."""
        now_s = time.time()
        if last is not None and now_s - float(last) < self._every_s:
            raise TooSoon(
                f"'{self._name}' began {now_s - float(last):.3f} s ago in this fleet: at most every {self._every_s} s"
            )
        return [held.is_owner()], [Put(self._began, repr(now_s).encode())]

    def _skipped(self, reason: Exception) -> None:
        log.info("Another instance has it: the function was not called.", name=self._name, reason=str(reason))


S = TypeVar("S", ExitStack, AsyncExitStack)


def _pop(blocks: dict[object, list[S]], who: object) -> S:
    """The innermost open block of this thread or task."""
    mine = blocks[who]
    stack = mine.pop()
    if not mine:
        del blocks[who]
    return stack


__all__ = ["TooSoon", "only_one"]
