"""The log: one event is one readable sentence with fields, on standard error; optionally as JSON lines.

structlog takes longer to import than everything else in a program that uses a lock. So it is imported by `configure`,
or when the first line is logged.
"""

from __future__ import annotations

import sys
from typing import Any


class Logger:
    """Binds to structlog when it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        try:
            import structlog
        except (ImportError, OSError):  # a process without free file descriptors cannot import, but must go on
            return _log_plainly
        # Methods are not kept here: structlog decides at every call, so that tests can capture the log.
        return getattr(structlog.get_logger(self._name), method)


def _log_plainly(sentence: str, **fields: object) -> None:
    print(sentence, fields, file=sys.stderr)


def get_logger(name: str) -> Any:
    """A logger with structlog's methods: `info(sentence, field=value)`, `warning`, `error`, `exception`."""
    return Logger(name)


def configure(*, json: bool = False, **always: str) -> None:
    """Set up the log of this process. `always` (such as the node's name) is added to every line."""
    import structlog

    render: structlog.types.Processor = (
        structlog.processors.JSONRenderer()
        if json
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            render,
        ],
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(**always)
