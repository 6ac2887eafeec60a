"""The log: one event is one readable sentence with fields, on standard error.

Lines are for people on a terminal, else JSON. Lines of libraries that use `logging` (aiohttp, asyncio) take the same
way. A repeated line is logged once in ten seconds, with the number of repeats.

structlog takes longer to import than everything else in a program that uses a lock. So it is imported by `configure`,
or when the first line is logged.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from leasehold.base.errors import InvalidArgument
from leasehold.base.text import printable
from leasehold.runtime.clock import BootClock

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor, WrappedLogger

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("auto", "text", "json")
REPEAT_MS: Final = 10_000
_BAD_HTTP: Final = "aiohttp.http_exceptions"
TEXT_MAX: Final = 10_000  # characters of one field in a line for people
_REPEATS_MAX: Final = 1024
_RANK: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}


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
    print(printable(sentence), fields, file=sys.stderr)


def get_logger(name: str) -> Any:
    """A logger with structlog's methods: `info(sentence, field=value)`, `warning`, `error`, `exception`."""
    return Logger(name)


class Threshold:
    """The level from which lines are logged. It may change while the process runs."""

    def __init__(self, level: str = "info") -> None:
        self.level = level

    def change(self, level: str) -> None:
        if level not in LEVELS:
            raise InvalidArgument(f"level {level!r} is unknown; write one of {', '.join(LEVELS)}")
        self.level = level

    def __call__(self, _logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        if _RANK.get(method, 20) < _RANK[self.level]:
            from structlog import DropEvent

            raise DropEvent
        return event


class Repeats:
    """Drops a line that was logged less than ten seconds ago, and counts it for the next one of its kind."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._seen: dict[str, tuple[int, int]] = {}  # line -> when it was logged, how often it was dropped since

    def __call__(self, _logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        line, now_ms = f"{method} {event!r}", self._now_ms()
        logged_ms, dropped = self._seen.get(line, (now_ms - REPEAT_MS, 0))
        if now_ms - logged_ms < REPEAT_MS:
            from structlog import DropEvent

            self._seen[line] = (logged_ms, dropped + 1)
            raise DropEvent
        if len(self._seen) >= _REPEATS_MAX:
            self._forget(now_ms)
        self._seen[line] = (now_ms, 0)
        return {**event, "repeats_not_logged": dropped} if dropped else event

    def _forget(self, now_ms: int) -> None:
        """Bound the memory: forget lines that would be logged again anyway, or all."""
        self._seen = {line: seen for line, seen in self._seen.items() if now_ms - seen[0] < REPEAT_MS}
        if len(self._seen) >= _REPEATS_MAX:
            self._seen.clear()


def escape_control_characters(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Escape control characters of peers and keys, which could rewrite a terminal."""
    return {name: printable(value, TEXT_MAX) if isinstance(value, str) else value for name, value in event.items()}


class _Forwarding(logging.Handler):
    """Passes the lines of libraries on: aiohttp's errors, asyncio's lost exceptions, Python's warnings."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if type(error).__module__ == _BAD_HTTP:  # the peer's fault: no traceback, and no text of the peer
            Logger(record.name).info("malformed HTTP requests are refused", kind=type(error).__name__)
            return
        method = record.levelname.lower() if record.levelname.lower() in _RANK else "info"
        fields: dict[str, Any] = {"exc_info": record.exc_info} if record.exc_info else {}
        getattr(Logger(record.name), method)(record.getMessage(), logger=record.name, **fields)


threshold: Final = Threshold()


def configure(*, format: str = "auto", level: str = "info", **always: str) -> None:
    """Set up the log of this process. `always` (such as the node's name) is added to every line.

    `format` is text, json, or auto: text if standard error is a terminal.
    """
    import structlog

    threshold.change(level)
    structlog.configure(
        processors=[
            threshold,
            structlog.contextvars.merge_contextvars,
            Repeats(BootClock().now_ms),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *_renderers(as_json=format == "json" or (format == "auto" and not sys.stderr.isatty())),
        ],
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(**always)
    root = logging.getLogger()
    root.handlers[:] = [_Forwarding()]
    root.setLevel(logging.WARNING)
    logging.captureWarnings(True)


def _renderers(*, as_json: bool) -> list[Processor]:
    import structlog

    if as_json:  # JSON escapes everything that is not ASCII
        return [structlog.processors.JSONRenderer()]
    text = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0)
    return [_escape_but_exceptions, text]


def _escape_but_exceptions(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """As `escape_control_characters`; a traceback keeps its lines."""
    trace = event.pop("exception", None)
    escaped = escape_control_characters(logger, method, event)
    if trace is not None:
        escaped["exception"] = "\n".join(printable(line, TEXT_MAX) for line in str(trace).splitlines())
    return escaped
