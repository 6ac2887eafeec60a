"""A trouble that lasts is told when it begins and when it is over, not at every attempt in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


class Trouble:
    """One thing that may fail again and again; `begins` and `ends` are the sentences for the log."""

    __slots__ = ("_begins", "_ends", "_log", "lasts")

    def __init__(self, log: FilteringBoundLogger, begins: str, ends: str = "") -> None:
        self._log = log
        self._begins = begins
        self._ends = ends
        self.lasts = False

    def met(self, **fields: object) -> None:
        """It has failed (again)."""
        if not self.lasts:
            self.lasts = True
            self._log.warning(self._begins, **fields)

    def over(self) -> None:
        """It has worked."""
        if self.lasts:
            self.lasts = False
            if self._ends:
                self._log.info(self._ends)
