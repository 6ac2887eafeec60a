"""Worker processes of a benchmark that start their work together.

Workers are forked from a fresh server process, not from this one: a process that has used gRPC or started threads must
not be forked. The parent fails when a worker dies instead of waiting for its result forever.
"""

from __future__ import annotations

import multiprocessing
import queue
import traceback
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

POLL_S = 0.2
_CONTEXT = multiprocessing.get_context("forkserver")


class WorkerDied(Exception):
    """A worker process raised an error or was killed."""


class Start:
    """`wait()`: this worker is ready; returns when all of them are."""

    def __init__(self, results: Any, go: Any) -> None:
        self._results, self._go = results, go

    def wait(self) -> None:
        self._results.put(("ready", None))
        self._go.wait()


def run_workers(
    work: Callable[..., Any], count: int, arguments: tuple[object, ...], started: Callable[[], None]
) -> list[Any]:
    """Run `work(number, start, *arguments)` in `count` processes; return their results.

    Each must call `start.wait()` once. `started()` is called when all are ready, before any of them goes on.
    """
    # The server imports the benchmark once, so that a worker starts quickly.
    _CONTEXT.set_forkserver_preload([work.__module__])
    results, go = _CONTEXT.Queue(), _CONTEXT.Event()
    processes = [
        _CONTEXT.Process(target=_work, args=(work, number, Start(results, go), results, arguments))
        for number in range(count)
    ]
    try:
        for process in processes:
            process.start()
        for _ in processes:
            _next(results, processes, "ready")
        started()
        go.set()
        found = [_next(results, processes, "done") for _ in processes]
        for process in processes:
            process.join()
        return found
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()


def _work(work: Callable[..., Any], number: int, start: Start, results: Any, arguments: tuple[object, ...]) -> None:
    try:
        results.put(("done", work(number, start, *arguments)))
    except BaseException:
        results.put(("failed", traceback.format_exc()))
        raise


def _next(results: Any, processes: list[Any], wanted: str) -> Any:
    """The next message of any worker."""
    while True:
        dead = _dead(processes)  # looked at before the queue: a worker may send its last message and exit
        try:
            kind, value = results.get(timeout=POLL_S)
        except queue.Empty:
            if dead is not None:
                raise WorkerDied(f"{dead.name} died: exit code {dead.exitcode}") from None
            continue
        if kind == "failed":
            raise WorkerDied(f"a worker failed:\n{value}")
        if kind != wanted:
            raise WorkerDied(f'a worker sent "{kind}" instead of "{wanted}": it must call start.wait() once')
        return value


def _dead(processes: list[BaseProcess]) -> BaseProcess | None:
    return next((each for each in processes if each.exitcode not in (None, 0)), None)
