"""A command that runs only as long as a lock is held."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

# Between "please end" and "end": within the margin that a session keeps before its lease can end.
TERM_GRACE_PART = 0.5
PR_SET_PDEATHSIG = 1
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def run_child(argv: Iterable[str], environment: Mapping[str, str], *, margin_s: float) -> int:
    """Run `argv`; its exit code, 128 + signal if a signal ended it.

    Signals are passed on. When this call is cancelled the child is ended before it returns: asked at first, killed
    after half of `margin_s`. If this process dies, so does the child.
    """
    child = await asyncio.create_subprocess_exec(*argv, env={**os.environ, **environment}, preexec_fn=_die_with_parent)
    with passing_on_signals(child):
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


@contextmanager
def passing_on_signals(child: asyncio.subprocess.Process) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def pass_on(number: int) -> None:
        with suppress(ProcessLookupError):
            child.send_signal(number)

    for number in PASSED_ON:
        loop.add_signal_handler(number, pass_on, number)
    try:
        yield
    finally:
        for number in PASSED_ON:
            loop.remove_signal_handler(number)


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


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
