"""The log as a process writes it: JSON into a file, text for people, one way for all libraries, no floods."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest
from structlog import DropEvent

from leasehold.base.clock import ManualClock
from leasehold.base.errors import InvalidArgument
from leasehold.runtime.log import REPEAT_MS, Repeats, Threshold


def logged(program: str, **configured: str) -> str:
    """The standard error of a program that logs."""
    arguments = ", ".join(f"{name}={value!r}" for name, value in configured.items())
    head = f"from leasehold.runtime import log as logs\nlogs.configure({arguments})\nlog = logs.get_logger('test')\n"
    done = subprocess.run(
        [sys.executable, "-c", head + textwrap.dedent(program)], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stderr


def test_a_log_that_is_no_terminal_is_json() -> None:
    lines = [json.loads(line) for line in logged('log.warning("a disk is slow", ms=7)').splitlines()]
    assert (lines[0]["event"], lines[0]["ms"], lines[0]["level"]) == ("a disk is slow", 7, "warning")
    assert lines[0]["timestamp"].endswith("Z")


def test_control_characters_are_escaped_in_text_and_in_json() -> None:
    hostile = 'log.warning("peer \\x1b[2J\\u202e says\\r\\nfake line", key="a\\x07\\x9b1m")'
    text = logged(hostile, format="text")
    assert not {"\x1b", "\r", "\x07", "\u202e", "\x9b"} & set(text)
    assert len(text.splitlines()) == 1
    assert r"\x1b[2J" in text
    (line,) = logged(hostile).splitlines()
    assert line.isascii()
    assert line.isprintable()


def test_lines_of_libraries_take_the_same_way() -> None:
    program = """
        import asyncio, logging, warnings
        logging.getLogger("aiohttp.server").error("Error handling request", exc_info=ValueError("boom"))
        logging.getLogger("chatty").info("not logged")
        warnings.warn("old name", DeprecationWarning)
    """
    lines = [json.loads(line) for line in logged(program).splitlines()]
    assert [line["logger"] for line in lines] == ["aiohttp.server", "py.warnings"]
    assert "ValueError: boom" in lines[0]["exception"]


def test_malformed_requests_of_peers_are_no_flood_of_tracebacks() -> None:
    """A hundred of them, each with another text, gave 1,100 lines."""
    program = """
        import logging
        from aiohttp.http_exceptions import BadHttpMessage, InvalidHeader
        for number in range(100):
            error = BadHttpMessage(f"bad header {number}") if number % 2 else InvalidHeader(b"x%d" % number)
            logging.getLogger("aiohttp.server").error("Error handling request", exc_info=error)
    """
    lines = [json.loads(line) for line in logged(program).splitlines()]
    assert [(line["level"], line["kind"]) for line in lines] == [("info", "InvalidHeader"), ("info", "BadHttpMessage")]
    assert "exception" not in lines[0]


def test_the_level_decides_which_lines_are_logged() -> None:
    program = 'log.debug("a"); log.info("b"); logs.threshold.change("error"); log.warning("c"); log.error("d")'
    assert [json.loads(line)["event"] for line in logged(program, level="debug").splitlines()] == ["a", "b", "d"]
    with pytest.raises(InvalidArgument, match="'loud' is unknown"):
        Threshold().change("loud")


def test_a_repeated_line_is_logged_once_in_ten_seconds_with_a_count() -> None:
    clock = ManualClock(100_000)
    repeats = Repeats(clock.now_ms)
    line = {"event": "the store does not answer", "peer": "a"}
    assert repeats(None, "warning", dict(line)) == line
    for _ in range(3):
        clock.advance(REPEAT_MS // 4)
        with pytest.raises(DropEvent):
            repeats(None, "warning", dict(line))
    assert repeats(None, "warning", {**line, "peer": "b"})["peer"] == "b", "another line is not a repeat"
    clock.advance(REPEAT_MS // 4)
    assert repeats(None, "warning", dict(line))["repeats_not_logged"] == 3


def test_a_flood_of_different_lines_does_not_fill_the_memory() -> None:
    repeats = Repeats(ManualClock(0).now_ms)
    for number in range(5_000):
        repeats(None, "info", {"event": str(number)})
    assert len(repeats._seen) <= 1024
