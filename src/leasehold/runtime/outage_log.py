"""Log an outage once when it begins and once when it ends, not at every attempt in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


class OutageLog:
    """One operation that may fail repeatedly. `begin` and `end` are the sentences for the log."""

    __slots__ = ("_begin", "_end", "_log", "ongoing")

    def __init__(self, log: FilteringBoundLogger, begin: str, end: str = "") -> None:
        self._log = log
        self._begin = begin
        self._end = end
        self.ongoing = False

    def failed(self, **fields: object) -> None:
        """Report a failed attempt; the first one is logged."""
        if not self.ongoing:
            self.ongoing = True
            self._log.warning(self._begin, **fields)

    def succeeded(self) -> None:
        """Report a successful attempt; the first one after an outage is logged."""
        if self.ongoing:
            self.ongoing = False
            if self._end:
                self._log.info(self._end)
