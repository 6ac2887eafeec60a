"""What becomes of a dead worker's connections.

A guardian holds every connection of its worker a second time, so they outlive it. Which of them may be served on by
somebody else? Only one on which nothing is open: every byte that the worker has read belonged to a request that it
has answered, and that answer has wholly left (schedule 20: what was read and not answered is reset, never moved).

The worker cannot be asked any more, so it says so beforehand, by one number for each connection in memory that both
see, its **mark**: *when so many bytes have passed, in both directions together, nothing is open.* It sets the mark
just **before** it writes an answer that leaves no other open, to what will have passed when that is written. What
really has passed is asked of the kernel, which nobody can kill:

- less than the mark: killed before all of the answer was written. Its request is open;
- as much: the answer was written, and nothing was read since;
- more: something was read since (the sum never falls), and no answer of it was the last one open.

There is no moment, also none inside a system call, in which the two agree by chance. One more rule makes it so: if
the kernel did not take the whole answer, the mark is `NEVER` before anything else is read, for the missing bytes of
an answer could otherwise be made up for by as many of the next request.
"""

from __future__ import annotations

from enum import Enum


class Fate(Enum):
    """What the guardian does with one connection."""

    FORWARD = "forward"  # nothing is open: like a connection of which nothing was read
    RESET = "reset"  # a request may be open: its outcome is unknown, and its caller must know that
    DROP = "drop"  # it is over already, by the peer or by the worker


def judge(applied: int, passed_bytes: int | None, *, gone: bool) -> Fate:
    """`mark` is what the worker had set, `passed_bytes` what the kernel has counted (None: it cannot say)."""
    if gone:
        return Fate.DROP
    return Fate.FORWARD if passed_bytes == applied else Fate.RESET
