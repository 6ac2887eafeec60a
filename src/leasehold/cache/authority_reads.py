"""The authority's reading half: answers, and the leases that go with them. Pure."""

from __future__ import annotations

from leasehold.base.invariants import ensure
from leasehold.cache.authority_base import AuthorityBase
from leasehold.cache.checks import objection_to_ask
from leasehold.cache.events import Load, Loaded, LoadFailed
from leasehold.cache.key_state import Cell, Gather, Pending
from leasehold.cache.model import ABSENT, Answer, Ask, Code, Item
from leasehold.leases.adaptive import adaptive_term_ms


class AuthorityReads(AuthorityBase):
    def _on_ask(self, now_ms: int, client: str, ask: Ask) -> None:
        refusal = Code.NOT_SERVING if not self.may_serve(now_ms) else objection_to_ask(ask)
        if refusal is not None:
            items = tuple(Item(key, None, ABSENT, 0, refusal) for key in ask.keys)
            self._send(client, Answer(ask.seq, items))
            return
        gather = Gather(client, ask.seq, len(ask.keys))
        for index, key in enumerate(ask.keys):
            cell = self._cell(now_ms, key)
            if self.settings.adaptive:
                cell.rates.count(now_ms, reads=1 + (ask.hits[index] if index < len(ask.hits) else 0))
            if cell.known:
                gather.put(index, self._item(now_ms, cell, client, ask.seq))
            else:
                cell.readers.append((gather, index))
                self._load(cell)
        self._answer_if_complete(gather)
        self._shrink()

    def _item(self, now_ms: int, cell: Cell, client: str, asked: int) -> Item:
        return self._granted(now_ms, cell, client, asked, self._term_ms(now_ms, cell))

    def _granted(self, now_ms: int, cell: Cell, client: str, asked: int, term_ms: int) -> Item:
        if term_ms > 0:
            self.table.grant(cell.key, client, now_ms + term_ms, asked)
        return Item(cell.key, cell.value, cell.version, max(0, term_ms))

    def _term_ms(self, now_ms: int, cell: Cell) -> int:
        """How long a lease may be given now; 0 for none."""
        if self.stopping:
            return 0
        term_ms = self.settings.term_ms
        if self.settings.adaptive:
            sharers = len(self.table.live_holders(cell.key, now_ms))
            term_ms = adaptive_term_ms(cell.rates, sharers, self.settings.term_min_ms, term_ms)
        pending = cell.pending
        if pending is None:
            return term_ms
        if pending.doubtful or pending.token is not None:
            return 0  # the new value may already stand in the store, where a successor would find it
        if pending.request.write.mode == "wait":
            return self._capped_ms(now_ms, pending, term_ms)
        return self._during_callback_ms(now_ms, pending, term_ms)

    def _capped_ms(self, now_ms: int, pending: Pending, term_ms: int) -> int:
        """A reader may keep the old value no longer than somebody already may."""
        return min(term_ms, pending.ends_ms - now_ms)

    def _during_callback_ms(self, now_ms: int, pending: Pending, term_ms: int) -> int:
        """Nothing: who has acknowledged and asks again would keep the old value beyond the last acknowledgement."""
        return 0

    def _answer_if_complete(self, gather: Gather) -> None:
        if gather.missing == 0:
            self._send(gather.client, Answer(gather.seq, gather.items()))

    # --- loading ---

    def _load(self, cell: Cell) -> None:
        if not cell.loading:
            cell.loading = True
            self._effects.append(Load(cell.key))

    def _on_loaded(self, now_ms: int, event: Loaded) -> None:
        cell = self._cells.get(event.key)
        if cell is None or not cell.loading:
            return
        ensure(cell.pending is None, "nothing is loaded while a write is under way", event.key)
        cell.loading = False
        cell.known, cell.value, cell.version = True, event.value, event.version
        if event.value is not None and event.version == ABSENT:
            cell.version = self._next_version()  # a store that keeps no tokens
        self._advance(now_ms, cell)  # first, so that a waiting write is not held up by leases given here
        readers, cell.readers = cell.readers, []
        for gather, index in readers:
            if self.may_serve(now_ms):
                gather.put(index, self._item(now_ms, cell, gather.client, gather.seq))
            else:
                gather.put(index, Item(cell.key, None, ABSENT, 0, Code.NOT_SERVING))
            self._answer_if_complete(gather)

    def _on_load_failed(self, now_ms: int, event: LoadFailed) -> None:
        key, reason = event.key, event.reason
        cell = self._cells.get(key)
        if cell is None or not cell.loading:
            return
        del self._cells[key]
        for gather, index in cell.readers:
            gather.put(index, Item(key, None, ABSENT, 0, Code.UNAVAILABLE))
            self._answer_if_complete(gather)
        for request in cell.queue:
            self._refuse(request, Code.UNAVAILABLE, f"the store behind could not be read: {reason}")

    def _shrink(self) -> None:
        """Forget what was used least recently; leases are kept elsewhere and stand."""
        while len(self._cells) > self.settings.entries_max:
            # Where values must stay, all but the latest few are values, and what was asked for in vain is among those.
            cells = reversed(self._cells.values()) if self._keeps_all else iter(self._cells.values())
            found = next((cell for cell in cells if self._dispensable(cell)), None)
            if found is None:
                return
            del self._cells[found.key]

    def _dispensable(self, cell: Cell) -> bool:
        """What the store behind has, too; without one, only what is not there anyway."""
        return cell.idle() and (cell.value is None or not self._keeps_all)
