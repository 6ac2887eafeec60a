"""A command that runs only as long as a lock is held."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

# Between "please end" and "end": within the margin that a session keeps before its lease can end.
TERM_GRACE_PART = 0.5
PR_SET_PDEATHSIG = 1
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


# Run before the command, in its place: ask the kernel to kill it with its parent, unless that is gone already. Not a
# `preexec_fn`: Python code between fork and exec is not safe in a process with threads, and gRPC has threads.
DIE_WITH_PARENT = f"""import ctypes, os, sys
ctypes.CDLL(None).prctl({PR_SET_PDEATHSIG}, {int(signal.SIGKILL)})
if os.getppid() != int(sys.argv[1]): os._exit({128 + signal.SIGKILL})
try: os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error: print(f"leasehold: {{sys.argv[2]}}: {{error.strerror}}", file=sys.stderr); os._exit(127)
"""


async def run_child(argv: Sequence[str], environment: Mapping[str, str], *, margin_s: float) -> int:
    """Run `argv`; its exit code, 128 + signal if a signal ended it.

    Signals are passed on. When this call is cancelled the child is ended before it returns: asked at first, killed
    after half of `margin_s`. If this process dies, so does the child.
    """
    guarded = [sys.executable, "-I", "-S", "-c", DIE_WITH_PARENT, str(os.getpid()), *argv]
    with PassingOn() as passing_on:
        child = await asyncio.create_subprocess_exec(*guarded, env={**os.environ, **environment})
        passing_on.to(child)
        try:
            return exit_code(await child.wait())
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):
                child.terminate()
            try:
                await asyncio.wait_for(child.wait(), margin_s * TERM_GRACE_PART)
            except TimeoutError:
                with suppress(ProcessLookupError):
                    child.kill()
                await child.wait()
            raise


def exit_code(returncode: int) -> int:
    return 128 - returncode if returncode < 0 else returncode


class PassingOn:
    """Signals to this process go to its child, also those that come before the child is there."""

    def __init__(self) -> None:
        self._child: asyncio.subprocess.Process | None = None
        self._early: list[int] = []

    def to(self, child: asyncio.subprocess.Process) -> None:
        self._child = child
        for number in self._early:
            self._pass_on(number)

    def _pass_on(self, number: int) -> None:
        if self._child is None:
            self._early.append(number)
            return
        with suppress(ProcessLookupError):
            self._child.send_signal(number)

    def __enter__(self) -> Self:
        for number in PASSED_ON:
            asyncio.get_running_loop().add_signal_handler(number, self._pass_on, number)
        return self

    def __exit__(self, *_: object) -> None:
        for number in PASSED_ON:
            asyncio.get_running_loop().remove_signal_handler(number)


async def cancelled_by_signal(work: Coroutine[Any, Any, int]) -> int:
    """Run `work`; a signal cancels it, so that what it holds is given back. Its exit code, or 128 + signal."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    told: list[int] = []

    def cancel(number: int) -> None:
        told.append(number)
        task.cancel()

    for number in PASSED_ON:
        loop.add_signal_handler(number, cancel, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not told:
            raise
        return 128 + told[0]


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
