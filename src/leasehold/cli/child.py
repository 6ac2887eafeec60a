"""Run a command until it finishes or a signal arrives, and run a child process only while a lock is held."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from leasehold.runtime.child_process import dying_with_parent
from leasehold.runtime.signals import blocked

T = TypeVar("T")
# Part of a session's margin between SIGTERM and SIGKILL: the child must be dead before the lease can expire.
TERM_GRACE_PART = 0.5
# Time after a signal to release locks and leases; then the process exits without waiting for the store.
END_GRACE_S = 1.5
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SignalRouter:
    """Passes signals to the innermost handler. The outermost one cancels the work."""

    def __init__(self) -> None:
        self._handlers: list[Callable[[int], None]] = []
        self.received: list[int] = []

    def deliver(self, number: int) -> None:
        self.received.append(number)
        self._handlers[-1](number)

    @contextmanager
    def handled_by(self, handler: Callable[[int], None]) -> Iterator[None]:
        self._handlers.append(handler)
        try:
            yield
        finally:
            self._handlers.pop()

    def exit_soon(self, code: int) -> None:
        """Exit after a grace period, even if a store that does not answer still holds a lock or lease of ours."""
        asyncio.get_running_loop().call_later(END_GRACE_S, _exit_now, code)


def _exit_now(code: int) -> None:
    print(
        "leasehold: the store does not answer; the lock or leadership is released when its lease expires",
        file=sys.stderr,
    )
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run_once(work: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` for a command that finishes alone: SIGTERM cancels it as Ctrl-C does and sets the exit code.

    A signal handler that raised would interrupt the loop at a random point and look like a bug.
    """
    received: list[int] = []

    async def main() -> T:
        task = asyncio.current_task()
        assert task is not None  # a coroutine runs in a task

        def end() -> None:
            received.append(signal.SIGTERM)
            task.cancel()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)
        return await work

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        if received:
            sys.exit(128 + received[0])
        raise


def run_until_signal(work: Callable[[SignalRouter], Coroutine[Any, Any, int]]) -> int:
    """Run `work`, and cancel it on a signal so that it releases its locks. Returns its exit code, or 128 + signal."""
    return asyncio.run(_until_signal(work))


async def _until_signal(work: Callable[[SignalRouter], Coroutine[Any, Any, int]]) -> int:
    router = SignalRouter()
    task = asyncio.ensure_future(work(router))

    def cancel(number: int) -> None:
        task.cancel()
        router.exit_soon(128 + number)

    for number in PASSED_ON:
        asyncio.get_running_loop().add_signal_handler(number, router.deliver, number)
    with router.handled_by(cancel):
        try:
            return await task
        except asyncio.CancelledError:
            if not router.received:
                raise
            return 128 + router.received[0]


async def run_child(
    router: SignalRouter, argv: Sequence[str], environment: Mapping[str, str], *, margin_s: float
) -> int:
    """Run `argv` and return its exit code, or 128 + signal if a signal ended it.

    Signals are passed on to the child. If this call is cancelled, the child is dead before it returns: SIGTERM first,
    SIGKILL after half of `margin_s`. If this process dies, the child dies with it.
    """
    child_signals = ChildSignals()
    with router.handled_by(child_signals.send), child_signals:
        with blocked(*PASSED_ON):
            child = await asyncio.create_subprocess_exec(*dying_with_parent(argv), env={**os.environ, **environment})
        child_signals.attach(child.pid)
        try:
            code = exit_code(await child.wait())
            if router.received:
                router.exit_soon(code)
            return code
        except asyncio.CancelledError:
            child_signals.send(signal.SIGTERM)
            try:
                await asyncio.wait_for(child.wait(), margin_s * TERM_GRACE_PART)
            except TimeoutError:
                child_signals.send(signal.SIGKILL)
                await child.wait()
            raise


def exit_code(returncode: int) -> int:
    return 128 - returncode if returncode < 0 else returncode


class ChildSignals:
    """Sends signals to the child, and keeps those that arrive before the child exists.

    It uses a pidfd: asyncio's own `send_signal` polls the child first, and if the child has finished, that poll takes
    the exit code away from the task that waits for it, which then sees 255.
    """

    def __init__(self) -> None:
        self._child_fd = -1
        self._early: list[int] = []

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        if self._child_fd >= 0:
            os.close(self._child_fd)

    def attach(self, pid: int) -> None:
        with suppress(ProcessLookupError):  # it has finished already
            self._child_fd = os.pidfd_open(pid)
        for number in self._early:
            self.send(number)

    def send(self, number: int) -> None:
        if self._child_fd < 0:
            self._early.append(number)
            return
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._child_fd, number)


async def wait_for_signal() -> int:
    """Wait until a signal cancels this task, which is the normal end of a lock without a command; returns 0."""
    task = asyncio.current_task()
    assert task is not None  # a coroutine runs in a task
    try:
        await asyncio.get_running_loop().create_future()
    except asyncio.CancelledError as cancelled:
        if cancelled.args:  # not a signal: losing the session cancels with a message
            raise
        task.uncancel()
    return 0
