"""The authority's state and the few things that reading and writing share. Pure."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush
from typing import Any

from leasehold.cache.events import Effect, Send
from leasehold.cache.key_state import FOREVER_MS, Cell, Request
from leasehold.cache.model import ABSENT, Code, FromAuthority, Outcome, Version
from leasehold.cache.settings import AuthoritySettings
from leasehold.cache.subscriptions import Subscriptions
from leasehold.leases.adaptive import Rates
from leasehold.leases.arithmetic import outlasts_ms
from leasehold.leases.table import LeaseTable

OnEvent = Callable[[int, Any], None]
OnMessage = Callable[[int, str, Any], None]


class AuthorityBase:
    """One term of office. A restart or a failover makes a new one, with a higher epoch.

    `term_before_ms` is the longest term that a predecessor may have given, 0 if there was none or if it left the
    clean-stop marker. With `keeps_all` the machine is the truth itself and forgets nothing.
    """

    def __init__(
        self,
        now_ms: int,
        settings: AuthoritySettings,
        epoch: int,
        *,
        term_before_ms: int = 0,
        keeps_all: bool = False,
        right_until_ms: int = FOREVER_MS,
    ) -> None:
        self.settings = settings
        self.epoch = epoch
        self.table = LeaseTable(settings.holders_per_key_max)
        self.writes_from_ms = now_ms + self._restart_wait_ms(term_before_ms)
        self.closed = False
        self.stopping = False
        self._term_settled = False
        self._keeps_all = keeps_all
        self._right_until_ms = right_until_ms
        self._n = 0
        self._cells: dict[bytes, Cell] = {}
        self._busy: dict[bytes, Cell] = {}  # keys with a write under way
        self._wakes: list[tuple[int, bytes]] = []
        self._swept_ms = now_ms
        self._subscriptions = Subscriptions()
        self._effects: list[Effect] = []
        self._by_event, self._by_message = self._tables()
        self.acks_ignored = 0

    def _tables(self) -> tuple[dict[type, OnEvent], dict[type, OnMessage]]:
        """What is done on which event, and on which message: a chain of `case`s costs more than many a decision."""
        raise NotImplementedError

    def may_serve(self, now_ms: int) -> bool:
        """Whether this authority is in office, as far as it can prove."""
        return not self.closed and now_ms < self._right_until_ms

    def _advance(self, now_ms: int, cell: Cell) -> None:
        """Begin the next write of this key if none is under way."""
        raise NotImplementedError

    def _cell(self, now_ms: int, key: bytes) -> Cell:
        cell = self._cells.pop(key, None)
        if cell is None:
            cell = Cell(key, Rates(now_ms))
        self._cells[key] = cell  # most recently used last
        return cell

    def _restart_wait_ms(self, term_before_ms: int) -> int:
        """Leases are not stored: any that the predecessor gave may be out for one longest term."""
        return outlasts_ms(term_before_ms, self.settings.drift_ppm) if term_before_ms else 0

    def _next_version(self) -> Version:
        self._n += 1
        return Version(self.epoch, self._n)

    def _wake(self, at_ms: int, cell: Cell) -> None:
        """Look at `cell` then. One alarm for each: an earlier one stands, and sets the next when it rings."""
        if at_ms < cell.wake_ms:
            cell.wake_ms = at_ms
            heappush(self._wakes, (at_ms, cell.key))

    def _send(self, client: str, message: FromAuthority) -> None:
        self._effects.append(Send(client, message))

    def _refuse(self, request: Request, code: Code, message: str) -> None:
        self._outcome(request.client, request.write.seq, code, ABSENT, message)

    def _outcome(self, client: str, seq: int, code: Code, version: Version = ABSENT, message: str = "") -> None:
        self._send(client, Outcome(seq, code, version, message))
