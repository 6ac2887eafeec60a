"""Call asynchronous code from synchronous code: an event loop on its own thread.

    with Portal("my-portal") as portal:
        answer = portal.call(client.get, b"key")
        for batch in portal.iterate(stream):
            ...

One portal may serve any number of threads. The shared one (`Portal.shared()`) is created on first use, and again in
a forked child, where the parent's thread does not exist.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import partial
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from leasehold.base.errors import CallerError
from leasehold.runtime.closing import Closing

P = ParamSpec("P")
T = TypeVar("T")


class PortalClosed(CallerError):
    """The portal was closed, or belongs to another process: create a new one."""


class Portal(Closing):
    """An event loop on a daemon thread; `call` runs a coroutine function there and waits for its result."""

    _shared: ClassVar[Portal | None] = None
    _shared_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, name: str = "leasehold-portal") -> None:
        self._pid = os.getpid()
        self._closed = False
        self._guard = threading.Lock()  # a call that starts before `close` is cancelled by it, never lost
        self._returning: set[asyncio.Task[object]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @classmethod
    def shared(cls) -> Portal:
        """The portal that all synchronous clients of this process share."""
        with cls._shared_lock:
            if cls._shared is None or cls._shared._pid != os.getpid() or cls._shared._closed:
                cls._shared = Portal()
            return cls._shared

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def submit(
        self, function: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> concurrent.futures.Future[T]:
        """Start `function(*args, **kwargs)` on the loop; the future receives its result."""
        if self._pid != os.getpid():
            raise PortalClosed("this portal was created before a fork: create a new one in this process")
        if threading.current_thread() is self._thread:
            raise CallerError("a synchronous call on the portal's own thread would block it: await the async method")
        with self._guard:
            if self._closed:
                raise PortalClosed("the portal is closed: create a new one")
            return asyncio.run_coroutine_threadsafe(function(*args, **kwargs), self._loop)

    def call(self, function: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `function(*args, **kwargs)` on the loop and wait; an interrupt (^C) cancels it there."""
        future = self.submit(function, *args, **kwargs)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def obtain(
        self,
        give_back: Callable[[T], Coroutine[Any, Any, object]],
        function: Callable[P, Coroutine[Any, Any, T]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Like `call`, for a result that must be released: if an interrupt (^C) loses it, `give_back` releases it.

        An interrupt may arrive just after the coroutine has finished: then there is nothing to cancel, and the caller
        never receives the result.
        """
        obtained: list[T] = []

        async def obtaining() -> T:
            obtained.append(await function(*args, **kwargs))
            return obtained[0]

        def return_it() -> None:
            if obtained:
                task = self._loop.create_task(give_back(obtained[0]))
                self._returning.add(task)
                task.add_done_callback(self._returning.discard)

        try:
            return self.call(obtaining)
        except BaseException:
            self.call_soon(return_it)
            raise

    def call_soon(self, function: Callable[..., object], *args: object) -> None:
        """Call a plain function on the loop, without waiting. Does nothing after `close`."""
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            return  # the loop is closed, so nothing waits for this call

    def iterate(self, source: AsyncIterator[T]) -> Iterator[T]:
        """An async iterator as a plain one; each item is fetched on demand."""

        async def following() -> T:
            return await anext(source)

        while True:
            try:
                item = self.call(following)
            except StopAsyncIteration:
                return
            yield item

    def close(self) -> None:
        """Cancel running calls, stop the loop, join the thread. May be called more than once."""
        if self._pid != os.getpid():
            return
        with self._guard:
            if self._closed:
                return
            self._closed = True
            self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._closed = True  # also if a callback stopped the loop with `sys.exit`
            pending = asyncio.all_tasks(self._loop)
            for task in pending:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    @classmethod
    def _after_fork(cls) -> None:
        cls._shared_lock = threading.Lock()  # a thread that does not exist here may have held the parent's lock
        cls._shared = None


os.register_at_fork(after_in_child=Portal._after_fork)


class SyncFace(Protocol):
    """A synchronous object over an asynchronous `core`, which runs on the portal's loop."""

    @property
    def portal(self) -> Portal: ...

    @property
    def core(self) -> object: ...


class Through(Generic[P, T]):
    """A coroutine method of the core as a plain method of the synchronous class, with the same signature and docstring.

    class SyncClient:
        get = Through(Client.get)  # client.get(b"key") runs on the portal's loop and waits
    """

    def __init__(self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> None:
        self._name = method.__name__
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, face: None, owner: type) -> Self: ...

    @overload
    def __get__(self, face: SyncFace, owner: type) -> Callable[P, T]: ...

    def __get__(self, face: SyncFace | None, owner: type) -> Self | Callable[P, T]:
        if face is None:
            return self
        return partial(face.portal.call, getattr(face.core, self._name))
