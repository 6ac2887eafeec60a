"""The authority's writing half: when a write may begin, when it may be stored, how it ends. Pure."""

from __future__ import annotations

from typing import Final

from leasehold.base.invariants import ensure
from leasehold.cache.authority_reads import AuthorityReads
from leasehold.cache.checks import objection_to_write
from leasehold.cache.events import CallBack, Deposed, Refilled, Store, Stored, StoreRefused, StoreUnknown
from leasehold.cache.key_state import Cell, Pending, Request
from leasehold.cache.model import ABSENT, Changed, Code, Drop, Item, Outcome, Version, Write

_STORE_RETRY_MS: Final = (50, 200, 1_000)


class AuthorityWrites(AuthorityReads):
    def _on_write(self, now_ms: int, client: str, write: Write) -> None:
        request = Request(client, write, now_ms + write.timeout_ms)
        objection = objection_to_write(write)
        if objection:
            self._refuse(request, Code.BAD_REQUEST, objection)
            return
        if self.stopping or not self.may_serve(now_ms):
            self._refuse(request, Code.NOT_SERVING, "this authority may not write; ask the one in office")
            return
        cell = self._cell(now_ms, write.key)
        if len(cell.queue) >= self.settings.writes_queued_per_key_max:
            self._refuse(request, Code.UNAVAILABLE, "too many writes wait for this key: try again later")
            return
        cell.queue.append(request)
        self._shrink()  # with the write in its queue this cell is not dispensable; what is absent elsewhere is
        if self._keeps_all and not cell.known and len(self._cells) > self.settings.entries_max:
            del self._cells[cell.key]
            self._refuse(request, Code.UNAVAILABLE, "the cache is full (`entries_max`): delete something first")
            return
        self._wake(request.deadline_ms, cell)
        self._advance(now_ms, cell)

    def _advance(self, now_ms: int, cell: Cell) -> None:
        while cell.queue and cell.pending is None:
            if not cell.known:
                self._load(cell)
                return
            request = cell.queue.popleft()
            if not self._refuse_at_once(now_ms, cell, request):
                self._begin(now_ms, cell, request)
        if cell.refills and cell.pending is None:
            self._refill(now_ms, cell)

    def _refuse_at_once(self, now_ms: int, cell: Cell, request: Request) -> bool:
        expect = request.write.expect
        if not self.may_serve(now_ms):
            self._refuse(request, Code.NOT_SERVING, "this authority may not write any longer")
        elif request.deadline_ms <= now_ms:
            self._refuse(request, Code.EXPIRED, "its time ran out before it could begin; nothing was done")
        elif expect is not None and expect != cell.version:
            text = f"version {cell.version} stands, not {expect}: read again"
            self._outcome(request.client, request.write.seq, Code.CONFLICT, cell.version, text)
        else:
            return False
        return True

    def _begin(self, now_ms: int, cell: Cell, request: Request) -> None:
        self._exempt_writer(cell.key, request)
        cell.refills.pop(request.client, None)  # it keeps nothing that it asked for before its write
        ends_ms = max(self.table.latest_end_ms(cell.key), self.writes_from_ms)
        if request.write.mode == "fail" and ends_ms > now_ms:
            self._refuse(request, Code.BUSY, f"leases are out for another {ends_ms - now_ms} ms; nothing was done")
            return
        unproven = now_ms < self.writes_from_ms or self.table.has_untracked(cell.key, now_ms)
        holders = set(self.table.live_holders(cell.key, now_ms))
        cell.pending = Pending(request, ends_ms, self._next_version(), holders, unproven)
        self._busy[cell.key] = cell
        if self.settings.adaptive:
            cell.rates.count(now_ms, reads=request.write.hits or 0, writes=1)
        if request.write.mode == "callback":
            self._effects.append(CallBack(sorted(holders), Drop(((cell.key, cell.pending.ticket),))))
        self._wake(ends_ms, cell)
        self._proceed(now_ms, cell)

    def _exempt_writer(self, key: bytes, request: Request) -> None:
        """The writer has dropped its copy, and keeps nothing that it asked for before its write was answered."""
        self.table.release_requested_before(key, request.client, request.write.seq)

    def _proceed(self, now_ms: int, cell: Cell) -> None:
        """Store, once nobody can hold a valid lease on the old value."""
        pending = cell.pending
        if pending is None or pending.token is not None:
            return
        all_answered = pending.request.write.mode == "callback" and not pending.unacked and not pending.unproven
        if now_ms >= pending.retry_ms and (all_answered or now_ms >= pending.ends_ms):
            if not self.may_serve(now_ms):
                self._give_up(now_ms, cell, Code.NOT_SERVING, "this authority may not write any longer")
                return
            pending.token = self._next_version()
            self._effects.append(Store(cell.key, pending.request.write.value, pending.token))

    def _on_ack(self, now_ms: int, client: str, key: bytes, ticket: Version, seq: int, hits: int | None) -> None:
        cell = self._busy.get(key)
        pending = cell.pending if cell is not None else None
        if cell is None or pending is None or pending.ticket != ticket or client not in pending.unacked:
            self.acks_ignored += 1  # late, repeated, or from a stranger: it proves nothing about the present
            return
        pending.unacked.remove(client)
        self.table.release(key, client)
        if hits is not None:
            if self.settings.adaptive:
                cell.rates.count(now_ms, reads=hits)
            self._want_refill(now_ms, cell, client, seq)
        if not pending.unacked:
            self._proceed(now_ms, cell)

    def _want_refill(self, now_ms: int, cell: Cell, client: str, seq: int) -> None:
        """It has use for the value, so it will soon ask: answer when the write has taken effect, not before."""
        cell.refills[client] = seq

    def _refill(self, now_ms: int, cell: Cell) -> None:
        """Nothing is under way on this key any more: those who acknowledged get what stands now, under a lease."""
        asked, cell.refills = cell.refills, {}
        if self.may_serve(now_ms):
            self._refill_all(now_ms, cell, asked, self._term_ms(now_ms, cell))

    def _refill_all(self, now_ms: int, cell: Cell, asked: dict[str, int], term_ms: int) -> None:
        if term_ms <= 0:
            return  # without a lease it is of no use: nobody waits for it
        self.table.grant_all(cell.key, asked, now_ms + term_ms)
        self._effects.append(Refilled(asked, Item(cell.key, cell.value, cell.version, term_ms)))

    def _on_stored(self, now_ms: int, event: Stored) -> None:
        key, token = event.key, event.token
        cell = self._busy.get(key)
        if cell is None or cell.pending is None or cell.pending.token != token:
            return  # an attempt that has been superseded by a newer token
        request = cell.pending.request
        cell.value = request.write.value
        cell.version = ABSENT if cell.value is None else token
        self._end_pending(cell)
        term_ms = self._writers_term_ms(now_ms, cell, request)
        self._send(request.client, Outcome(request.write.seq, Code.OK, token, "", term_ms))
        for client in self._subscriptions.interested(key):
            self._send(client, Changed(((key, token),)))
        self._advance(now_ms, cell)

    def _writers_term_ms(self, now_ms: int, cell: Cell, request: Request) -> int:
        """How long the writer may keep what it wrote: nothing if it did not ask, or if the next write waits already."""
        if not request.keeps or cell.queue or not self.may_serve(now_ms):
            return 0
        term_ms = self._term_ms(now_ms, cell)
        return self._granted(now_ms, cell, request.client, request.write.seq, term_ms).term_ms

    def _on_store_unknown(self, now_ms: int, event: StoreUnknown) -> None:
        """It may land at any time: only a newer token keeps it out. So the write is tried again under one."""
        cell = self._busy.get(event.key)
        if cell is None or cell.pending is None or cell.pending.token != event.token:
            return
        pending = cell.pending
        pending.token = None
        pending.doubtful = True
        pause_ms = _STORE_RETRY_MS[min(pending.attempts, len(_STORE_RETRY_MS) - 1)]
        pending.attempts += 1
        pending.retry_ms = now_ms + pause_ms
        self._wake(pending.retry_ms, cell)

    def _on_store_refused(self, now_ms: int, event: StoreRefused) -> None:
        key, token = event.key, event.token
        cell = self._busy.get(key)
        if cell is None or cell.pending is None or cell.pending.token != token:
            return
        self.closed = True
        for busy in list(self._busy.values()):
            pending = busy.pending
            ensure(pending is not None, "a busy key has a write under way", busy.key)
            if pending is not None:
                sent = pending.doubtful or (pending.token is not None and busy is not cell)
                code = Code.UNKNOWN if sent else Code.NOT_SERVING
                self._refuse(pending.request, code, "another authority is in office")
        for waiting in self._cells.values():
            for request in waiting.queue:
                self._refuse(request, Code.NOT_SERVING, "another authority is in office")
        self._effects.append(Deposed(f"the store behind refused token {token}: a newer authority is in office"))

    def _give_up(self, now_ms: int, cell: Cell, code: Code, message: str) -> None:
        """End a write that has not been stored; what holders were told to drop is merely asked for again."""
        pending = cell.pending
        if pending is None:
            return
        self._refuse(pending.request, Code.UNKNOWN if pending.doubtful else code, message)
        self._end_pending(cell)
        self._advance(now_ms, cell)

    def _end_pending(self, cell: Cell) -> None:
        cell.pending = None
        del self._busy[cell.key]
