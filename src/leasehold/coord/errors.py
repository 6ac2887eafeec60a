"""What a client of a coordination store can meet besides the store's own answers (`leasehold.mvcc.errors`)."""

from __future__ import annotations

from leasehold.base.errors import CallerError


class SlowConsumer(CallerError):
    """A watch's bounded queue ran full because nobody read it: read again what it watches, and watch from there."""
