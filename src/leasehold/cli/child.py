"""A command that runs only as long as a lock is held."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from leasehold.runtime.signals import blocked

T = TypeVar("T")
# Between "please end" and "end": within the margin that a session keeps before its lease can end.
TERM_GRACE_PART = 0.5
# Whoever was told to end gets this long to give back what it holds.
END_GRACE_S = 1.5
PR_SET_PDEATHSIG = 1
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


# Run before the command, in its place: ask the kernel to kill it with its parent, unless that is gone already. Not a
# `preexec_fn`: Python code between fork and exec is not safe in a process with threads, and gRPC has threads.
# Signals are held back until here: one that comes earlier is not met by Python, but ends the command.
DIE_WITH_PARENT = f"""import ctypes, os, signal, sys
ctypes.CDLL(None).prctl({PR_SET_PDEATHSIG}, {int(signal.SIGKILL)})
if os.getppid() != int(sys.argv[1]): os._exit({128 + signal.SIGKILL})
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_SETMASK, ())
try: os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error: print(f"leasehold: {{sys.argv[2]}}: {{error.strerror}}", file=sys.stderr); os._exit(127)
"""


class Desk:
    """Where signals arrive: whoever has asked last hears of them, at first the work itself, which they cancel."""

    def __init__(self) -> None:
        self._hearers: list[Callable[[int], None]] = []
        self.told: list[int] = []

    def hear(self, number: int) -> None:
        self.told.append(number)
        self._hearers[-1](number)

    @contextmanager
    def tells(self, hearer: Callable[[int], None]) -> Iterator[None]:
        self._hearers.append(hearer)
        try:
            yield
        finally:
            self._hearers.pop()

    def leave_soon(self, code: int) -> None:
        """The end was asked for: what is held is given back, but a store that does not answer is not waited for."""
        asyncio.get_running_loop().call_later(END_GRACE_S, _leave, code)


def _leave(code: int) -> None:
    print("leasehold: the store does not answer; what is held here ends by itself, with its lease", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run_once(work: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run`, for what asks and ends: SIGTERM cancels it as Ctrl-C does, and the exit code says so.

    An exception raised by a signal's handler would hit whatever the loop is doing just then, and be told of as a bug.
    """
    told: list[int] = []

    async def main() -> T:
        task = asyncio.current_task()
        assert task is not None  # a coroutine runs in a task

        def end() -> None:
            told.append(signal.SIGTERM)
            task.cancel()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)
        return await work

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        if told:
            sys.exit(128 + told[0])
        raise


def run_until_told(work: Callable[[Desk], Coroutine[Any, Any, int]]) -> int:
    """Run `work`; a signal cancels it, so that what it holds is given back. Its exit code, or 128 + signal."""
    return asyncio.run(_until_told(work))


async def _until_told(work: Callable[[Desk], Coroutine[Any, Any, int]]) -> int:
    desk = Desk()
    task = asyncio.ensure_future(work(desk))

    def cancel(number: int) -> None:
        task.cancel()
        desk.leave_soon(128 + number)

    for number in PASSED_ON:
        asyncio.get_running_loop().add_signal_handler(number, desk.hear, number)
    with desk.tells(cancel):
        try:
            return await task
        except asyncio.CancelledError:
            if not desk.told:
                raise
            return 128 + desk.told[0]


async def run_child(desk: Desk, argv: Sequence[str], environment: Mapping[str, str], *, margin_s: float) -> int:
    """Run `argv`; its exit code, 128 + signal if a signal ended it.

    Signals are passed on. When this call is cancelled the child is ended before it returns: asked at first, killed
    after half of `margin_s`. If this process dies, so does the child.
    """
    guarded = [sys.executable, "-I", "-S", "-c", DIE_WITH_PARENT, str(os.getpid()), *argv]
    passing_on = PassingOn()
    with desk.tells(passing_on.hear), passing_on:
        with blocked(*PASSED_ON):
            child = await asyncio.create_subprocess_exec(*guarded, env={**os.environ, **environment})
        passing_on.to(child.pid)
        try:
            code = exit_code(await child.wait())
            if desk.told:
                desk.leave_soon(code)
            return code
        except asyncio.CancelledError:
            passing_on.hear(signal.SIGTERM)
            try:
                await asyncio.wait_for(child.wait(), margin_s * TERM_GRACE_PART)
            except TimeoutError:
                passing_on.hear(signal.SIGKILL)
                await child.wait()
            raise


def exit_code(returncode: int) -> int:
    return 128 - returncode if returncode < 0 else returncode


class PassingOn:
    """Signals to this process go to its child, also those that come before the child is there.

    By a descriptor: asyncio's own `send_signal` looks first whether the child has ended, and if it has, takes its exit
    code away from whoever waits for it, who is told 255.
    """

    def __init__(self) -> None:
        self._child_fd = -1
        self._early: list[int] = []

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        if self._child_fd >= 0:
            os.close(self._child_fd)

    def to(self, pid: int) -> None:
        with suppress(ProcessLookupError):  # it is over already
            self._child_fd = os.pidfd_open(pid)
        for number in self._early:
            self.hear(number)

    def hear(self, number: int) -> None:
        if self._child_fd < 0:
            self._early.append(number)
            return
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._child_fd, number)


async def until_told() -> int:
    """Hold until a signal (or a loss) cancels; a signal is how such a hold ends well."""
    task = asyncio.current_task()
    assert task is not None  # a coroutine runs in a task
    try:
        await asyncio.get_running_loop().create_future()
    except asyncio.CancelledError as cancelled:
        if cancelled.args:  # not a signal: a hold that lost its session is cancelled with words
            raise
        task.uncancel()
    return 0
