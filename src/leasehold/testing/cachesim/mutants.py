"""The machines with one rule switched off each: the simulation must catch every one of them."""

from __future__ import annotations

from leasehold.cache.authority_effects import Refusal
from leasehold.cache.authority_grants import Grants
from leasehold.cache.authority_machine import PartTypes
from leasehold.cache.authority_term import AuthorityTerm
from leasehold.cache.authority_writes import Writes
from leasehold.cache.client_machine import ClientMachine
from leasehold.cache.entries import Entry
from leasehold.cache.events import StoreUnknown
from leasehold.cache.in_flight import Caller, ReadAttempt, WriteAttempt, WritesInFlight
from leasehold.cache.key_state import KeyState, PendingWrite, WriteRequest
from leasehold.cache.model import Code, Item, Refill
from leasehold.cache.settings import ClientSettings
from leasehold.leases.arithmetic import holder_deadline_ms
from leasehold.testing.cachesim.rules import Rules

# --- the authority ---


class LeasesDuringCallback(Grants):
    def _during_callback_ms(self, now_ms: int, pending: PendingWrite, lease_ms: int) -> int:
        return self._capped_ms(now_ms, pending, lease_ms)


class NoCap(Grants):
    def _capped_ms(self, now_ms: int, pending: PendingWrite, lease_ms: int) -> int:
        return lease_ms


class NoRestartWait(AuthorityTerm):
    def _restart_wait_ms(self, lease_before_ms: int, drift_ppm: int) -> int:
        return 0


class IgnoresUnknownOutcomes(Writes):
    """An unanswered store is treated as one that did not happen."""

    def store_unknown(self, now_ms: int, event: StoreUnknown) -> None:
        found = self._storing(event.key, event.token)
        if found is not None:
            self._give_up(now_ms, *found, Refusal(Code.UNKNOWN, "no answer"))


class ForgetsUntrackedHolders(Writes):
    """Holders beyond the bound are ignored: the acknowledgements of the others are enough."""

    def _has_untracked_holders(self, now_ms: int, key: bytes) -> bool:
        return now_ms < self._term.writes_from_ms


class ExemptsLateWriters(Grants):
    """A write that arrives late cancels the lease that its writer requested after it."""

    def exempt_writer(self, key: bytes, request: WriteRequest) -> None:
        self.table.release(key, request.client)


class RefillsBeforeTheWrite(Writes):
    """The request in an acknowledgement is answered when it arrives, like any other before the write."""

    def _want_refill(self, now_ms: int, state: KeyState, client: str, seq: int) -> None:
        self._send_refills(now_ms, state, {client: seq}, self._grants.settings.term_ms)


class RefillsBeforeTheStoreAnswers(Writes):
    """Refills are sent when the store is written to, not when it has answered."""

    def _proceed(self, now_ms: int, state: KeyState) -> None:
        super()._proceed(now_ms, state)
        if state.pending is not None and state.pending.token is not None:
            self._send_refills(now_ms, state, state.take_refills(), self._grants.settings.term_ms)


# --- the client ---


class NoVoid(ClientMachine):
    def _void_called_back(self, key: bytes) -> None:
        pass


class _NeverVoid(WritesInFlight):
    __slots__ = ()

    def void(self, key: bytes) -> None:
        pass


class KeepsWrittenValues(ClientMachine):
    """The lease on a written value is used although a callback has overtaken it."""

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings)
        self._writes = _NeverVoid()


class _Uncounted(WritesInFlight):
    """Writes that the client does not know to be in flight for their key."""

    __slots__ = ()

    def add(self, seq: int, write: WriteAttempt) -> None:
        self.by_request[seq] = write

    def remove(self, seq: int) -> WriteAttempt | None:
        return self.by_request.pop(seq, None)


class WriterKeeps(ClientMachine):
    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings)
        self._writes = _Uncounted()

    def _drop_own(self, key: bytes) -> Entry | None:
        return None


class CountsFromReceipt(ClientMachine):
    def _deadline_ms(self, now_ms: int, sent_ms: int, term_ms: int) -> int:
        return holder_deadline_ms(now_ms, term_ms, self.settings.drift_ppm)


class CountsRefillsFromArrival(ClientMachine):
    """The lease on a refill is counted from its arrival, not from when the acknowledgement was sent."""

    def _on_refill(self, now_ms: int, refill: Refill) -> None:
        for _, item in refill.items:
            entry = self.entries.by_key.get(item.key)
            if entry is not None:
                entry.refill_sent_ms = now_ms
        super()._on_refill(now_ms, refill)


class TakesAnyRefill(ClientMachine):
    """A refill that another callback has overtaken is used as the answer to the acknowledgement of that one."""

    def _on_refill(self, now_ms: int, refill: Refill) -> None:
        entries = self.entries.by_key
        items = [(entries[item.key].refill_seq if item.key in entries else seq, item) for seq, item in refill.items]
        super()._on_refill(now_ms, Refill(tuple(items)))


class SharesWithLateCallers(ClientMachine):
    """An answer without a lease is given to callers that joined after it was requested."""

    def _for_late_callers(self, item: Item, callers: list[Caller]) -> ReadAttempt | None:
        self._deliver(callers, item)
        return None


def _with_term(term: type[AuthorityTerm]) -> Rules:
    return Rules(authority=PartTypes(term=term), checks_invariants=False)


def _with_grants(grants: type[Grants]) -> Rules:
    return Rules(authority=PartTypes(grants=grants), checks_invariants=False)


def _with_writes(writes: type[Writes]) -> Rules:
    return Rules(authority=PartTypes(writes=writes), checks_invariants=False)


def _with_client(machine: type[ClientMachine]) -> Rules:
    return Rules(client=machine, checks_invariants=False)


MUTANTS: dict[str, Rules] = {
    "lease on reads during a callback write": _with_grants(LeasesDuringCallback),
    "void in-flight requests": _with_client(NoVoid),
    "void writes in flight": _with_client(KeepsWrittenValues),
    "writer drops its copy": _with_client(WriterKeeps),
    "cap in wait mode": _with_grants(NoCap),
    "send-time counting": _with_client(CountsFromReceipt),
    "send-time counting of refills": _with_client(CountsRefillsFromArrival),
    "a refill answers its own request": _with_client(TakesAnyRefill),
    "restart wait": _with_term(NoRestartWait),
    "drift margin": Rules(client_margin=False),
    "token on store": Rules(tokens=False),
    "retry after an unknown store": _with_writes(IgnoresUnknownOutcomes),
    "untracked holders": _with_writes(ForgetsUntrackedHolders),
    "refills wait for the write": _with_writes(RefillsBeforeTheWrite),
    "refills wait for the store": _with_writes(RefillsBeforeTheStoreAnswers),
    "late writers are not exempt": _with_grants(ExemptsLateWriters),
    "answers without a lease are not shared": _with_client(SharesWithLateCallers),
}
