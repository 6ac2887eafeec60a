"""The log: one event is one readable sentence with fields, on standard error; as JSON lines where asked for."""

from __future__ import annotations

import sys

import structlog


def configure(*, json: bool = False, **always: str) -> None:
    """Set the log up for this process; `always` (such as the node's name) goes with every line."""
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
