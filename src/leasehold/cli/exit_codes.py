"""The exit codes of all commands: docs/commands.md has the same table, and a test compares them."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The outcome of a command, for scripts. A signal gives 128 + its number."""

    OK = 0  # success
    FAILED = 1  # failure that may pass: no answer, refused by a node, a port in use, a full disk
    USAGE = 2  # wrong usage: flags, settings, addresses; a retry changes nothing
    PROBLEMS = 3  # the answer is complete, and lists at least one problem or difference
    NO_LEADER = 4  # the answer is complete, and no node leads
    NOT_FOUND = 5  # the named object, host or node does not exist
