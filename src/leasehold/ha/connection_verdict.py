"""Which connections of a dead worker may continue at another worker.

A guardian holds a second descriptor of every connection of its worker, so the connections survive it. Only an idle
connection may be forwarded: every byte that the worker read belonged to a request that it answered, and that answer
was sent completely (schedule 20: a request that was read and not answered is reset, never moved).

A dead worker cannot report this, so it publishes one number for each connection in shared memory beforehand, its
**checkpoint**: *when this many bytes have passed, in both directions together, no request is open.* The worker sets it
just **before** it writes an answer that leaves no other request open, to the count that will be reached once the
answer is written. The kernel counts the bytes that really passed, and no kill can disturb that count:

- fewer than the checkpoint: the worker died before it wrote the whole answer. Its request is open;
- equal: the answer was written, and nothing was read since;
- more: something was read since (the sum never falls), and its answer was not the last open one.

The two never agree by chance, not even inside a system call. One more rule ensures it: if the kernel did not take the
whole answer, the worker sets the checkpoint to `NEVER` before it reads anything else. Otherwise bytes of the next
request could stand in for the unsent bytes of the answer.
"""

from __future__ import annotations

from enum import Enum


class ConnectionVerdict(Enum):
    """The guardian's decision about one connection."""

    FORWARD = "forward"  # no request is open: same as a connection from which nothing was read
    RESET = "reset"  # a request may be open: its outcome is unknown, and the reset shows that to its caller
    DROP = "drop"  # already closed, by the peer or by the worker


def judge(checkpoint: int, passed_bytes: int | None, *, gone: bool) -> ConnectionVerdict:
    """Compare the worker's checkpoint with the bytes that the kernel counted (None: not available)."""
    if gone:
        return ConnectionVerdict.DROP
    return ConnectionVerdict.FORWARD if passed_bytes == checkpoint else ConnectionVerdict.RESET
