"""The machines with one rule switched off each: the simulation must catch every one of them."""

from __future__ import annotations

from leasehold.cache.authority_machine import AuthorityMachine
from leasehold.cache.client_events import Deliver
from leasehold.cache.client_machine import ClientMachine
from leasehold.cache.entries import Entry
from leasehold.cache.events import StoreUnknown
from leasehold.cache.in_flight import Flight
from leasehold.cache.key_state import Cell, Pending, Request
from leasehold.cache.model import Code, Item, Refill
from leasehold.leases.arithmetic import holder_deadline_ms
from leasehold.testing.cachesim.rules import Rules


class LeasesDuringCallback(AuthorityMachine):
    def _during_callback_ms(self, now_ms: int, pending: Pending, term_ms: int) -> int:
        return self._capped_ms(now_ms, pending, term_ms)


class NoCap(AuthorityMachine):
    def _capped_ms(self, now_ms: int, pending: Pending, term_ms: int) -> int:
        return term_ms


class NoRestartWait(AuthorityMachine):
    def _restart_wait_ms(self, term_before_ms: int) -> int:
        return 0


class ForgetsDoubt(AuthorityMachine):
    """An unknown store is taken for one that did not happen."""

    def _on_store_unknown(self, now_ms: int, event: StoreUnknown) -> None:
        cell = self._busy.get(event.key)
        if cell is not None and cell.pending is not None and cell.pending.token == event.token:
            self._give_up(now_ms, cell, Code.UNKNOWN, "no answer")


class BelievesTheUntracked(AuthorityMachine):
    """Holders beyond the bound are forgotten: "all have answered"."""

    def _begin(self, now_ms: int, cell: Cell, request: Request) -> None:
        super()._begin(now_ms, cell, request)
        if cell.pending is not None and now_ms >= self.writes_from_ms:
            cell.pending.unproven = False
            self._proceed(now_ms, cell)


class ExemptsLateWriters(AuthorityMachine):
    """A write that arrives late takes the lease that its writer asked for after it."""

    def _exempt_writer(self, key: bytes, request: Request) -> None:
        self.table.release(key, request.client)


class RefillsAtOnce(AuthorityMachine):
    """The request in an acknowledgement is answered when it arrives, like any other before the write."""

    def _want_refill(self, now_ms: int, cell: Cell, client: str, seq: int) -> None:
        self._refill_all(now_ms, cell, {client: seq}, self.settings.term_ms)


class RefillsInDoubt(AuthorityMachine):
    """What was asked for with an acknowledgement is answered when the store is told, not when it has answered."""

    def _proceed(self, now_ms: int, cell: Cell) -> None:
        super()._proceed(now_ms, cell)
        if cell.pending is not None and cell.pending.token is not None:
            asked, cell.refills = cell.refills, {}
            self._refill_all(now_ms, cell, asked, self.settings.term_ms)


class NoVoid(ClientMachine):
    def _void_called_back(self, key: bytes) -> None:
        pass


class KeepsWhatItWrote(ClientMachine):
    """The lease on what was written is kept though a callback has overtaken it."""

    def _void_writings(self, key: bytes) -> None:
        pass


class WriterKeeps(ClientMachine):
    def _drop_own(self, key: bytes) -> Entry | None:
        return None

    def _note_writing(self, key: bytes, change: int) -> None:
        pass


class CountsFromReceipt(ClientMachine):
    def _deadline_ms(self, now_ms: int, sent_ms: int, term_ms: int) -> int:
        return holder_deadline_ms(now_ms, term_ms, self.settings.drift_ppm)


class CountsRefillsFromArrival(ClientMachine):
    """The lease on a refill is counted from when it came, not from when the acknowledgement was sent."""

    def _on_refill(self, now_ms: int, refill: Refill) -> None:
        for _, item in refill.items:
            entry = self.entries.by_key.get(item.key)
            if entry is not None:
                entry.asked_ms = now_ms
        super()._on_refill(now_ms, refill)


class TakesAnyRefill(ClientMachine):
    """A refill that another callback has overtaken is taken for the answer to the acknowledgement of that one."""

    def _on_refill(self, now_ms: int, refill: Refill) -> None:
        entries = self.entries.by_key
        items = [(entries[item.key].asked if item.key in entries else seq, item) for seq, item in refill.items]
        super()._on_refill(now_ms, Refill(tuple(items)))


class SharesWithTheLate(ClientMachine):
    """An answer without a lease is given to callers who came after it was asked for."""

    def _for_the_late(self, item: Item, flight: Flight) -> Flight | None:
        self._effects.extend(Deliver(waiter, item.key, item.value, item.version) for waiter, _ in flight.late)
        return None


def _with_authority(machine: type[AuthorityMachine]) -> Rules:
    rules = Rules()
    rules.authority = machine
    return rules


def _with_client(machine: type[ClientMachine]) -> Rules:
    rules = Rules()
    rules.client = machine
    return rules


def _without_margin() -> Rules:
    rules = Rules()
    rules.client_margin = False
    return rules


def _without_tokens() -> Rules:
    rules = Rules()
    rules.tokens = False
    return rules


MUTANTS: dict[str, Rules] = {
    "lease on reads during a callback write": _with_authority(LeasesDuringCallback),
    "void in-flight requests": _with_client(NoVoid),
    "void writes in flight": _with_client(KeepsWhatItWrote),
    "writer drops its copy": _with_client(WriterKeeps),
    "cap in wait mode": _with_authority(NoCap),
    "send-time counting": _with_client(CountsFromReceipt),
    "send-time counting of refills": _with_client(CountsRefillsFromArrival),
    "a refill answers its own request": _with_client(TakesAnyRefill),
    "restart wait": _with_authority(NoRestartWait),
    "drift margin": _without_margin(),
    "token on store": _without_tokens(),
    "doubt after an unknown store": _with_authority(ForgetsDoubt),
    "untracked holders": _with_authority(BelievesTheUntracked),
    "refills wait for the write": _with_authority(RefillsAtOnce),
    "refills wait for the store": _with_authority(RefillsInDoubt),
    "late writers are not exempt": _with_authority(ExemptsLateWriters),
    "answers without a lease are not shared": _with_client(SharesWithTheLate),
}
