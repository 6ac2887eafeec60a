"""The authority's writes: when one may begin, when it may be stored, how it ends. Pure.

Invariants:
- at most one write of a key is pending, and exactly the keys with a pending write are in `_pending`;
- a write is stored only when no lease on the old value can be valid;
- a writer is answered OK only after the store has confirmed the token of the last attempt.
"""

from __future__ import annotations

from collections.abc import Collection

from leasehold.base.invariants import ensure
from leasehold.cache.authority_alarms import Alarms
from leasehold.cache.authority_effects import Effects, Refusal
from leasehold.cache.authority_grants import Grants
from leasehold.cache.authority_keys import Keys
from leasehold.cache.authority_term import AuthorityTerm
from leasehold.cache.checks import objection_to_write
from leasehold.cache.events import CallBack, Deposed, Refilled, Store, Stored, StoreRefused, StoreUnknown
from leasehold.cache.key_state import KeyState, PendingWrite, WriteRequest
from leasehold.cache.model import Ack, Changed, Code, Drop, Item, Outcome, Version, Write
from leasehold.cache.subscriptions import Subscriptions

_NOT_LEADER = Refusal(Code.NOT_SERVING, "this authority does not hold the leader lease any more; nothing was done")
_DEPOSED = "another authority has begun a newer term"
_EXPIRED_IN_QUEUE = Refusal(Code.EXPIRED, "the write's time ran out before it could begin; nothing was done")
_EXPIRED = Refusal(Code.EXPIRED, "the write's time ran out while leases were out; nothing was done")


class Writes:
    def __init__(
        self,
        term: AuthorityTerm,
        keys: Keys,
        grants: Grants,
        alarms: Alarms,
        subscriptions: Subscriptions,
        effects: Effects,
    ) -> None:
        self._term = term
        self._keys = keys
        self._grants = grants
        self._alarms = alarms
        self._subscriptions = subscriptions
        self._effects = effects
        self._pending: dict[bytes, KeyState] = {}
        self.acks_ignored = 0

    def pending(self) -> Collection[KeyState]:
        """The keys with a pending write."""
        return self._pending.values()

    # --- beginning ---

    def submit(self, now_ms: int, client: str, write: Write) -> None:
        """Take a client's write: reject it, queue it, or begin it."""
        request = WriteRequest(client, write, now_ms + write.timeout_ms)
        objection = objection_to_write(write)
        if objection is not None:
            self._effects.refuse(request, Refusal(Code.BAD_REQUEST, objection))
            return
        if self._term.stopping or not self._term.may_serve(now_ms):
            message = "this authority does not accept writes: send them to the one that holds the leader lease"
            self._effects.refuse(request, Refusal(Code.NOT_SERVING, message))
            return
        state = self._keys.touch(now_ms, write.key)
        if len(state.queue) >= self._grants.settings.writes_queued_per_key_max:
            message = "too many writes are queued for this key: try again later"
            self._effects.refuse(request, Refusal(Code.UNAVAILABLE, message))
            return
        state.enqueue(request)
        self._keys.shrink()  # this key stays, because a write is queued for it
        if self._keys.has_no_space_for(state):
            self._keys.forget(state.key)
            message = "the cache is full (`entries_max`): delete something first"
            self._effects.refuse(request, Refusal(Code.UNAVAILABLE, message))
            return
        self._alarms.set(request.deadline_ms, state)
        self.advance(now_ms, state)

    def advance(self, now_ms: int, state: KeyState) -> None:
        """Begin the next write of this key if none is pending; after the last one, send the refills."""
        while state.queue and state.pending is None:
            if not state.known:
                self._keys.load(state)
                return
            request = state.dequeue()
            refusal = self._refusal(now_ms, state, request)
            if refusal is None:
                self._begin(now_ms, state, request)
            else:
                self._effects.refuse(request, refusal)
        if state.refills and state.pending is None:
            self._refill(now_ms, state)

    def _refusal(self, now_ms: int, state: KeyState, request: WriteRequest) -> Refusal | None:
        expect = request.write.expect
        if not self._term.may_serve(now_ms):
            return _NOT_LEADER
        if request.deadline_ms <= now_ms:
            return _EXPIRED_IN_QUEUE
        if expect is not None and expect != state.version:
            message = f"the key has version {state.version}, not {expect}: read it again"
            return Refusal(Code.CONFLICT, message, state.version)
        return None

    def _begin(self, now_ms: int, state: KeyState, request: WriteRequest) -> None:
        table, key, mode = self._grants.table, state.key, request.write.mode
        self._grants.exempt_writer(key, request)
        state.cancel_refill(request.client)  # the writer keeps nothing that it requested before its write
        leases_end_ms = max(table.latest_end_ms(key), self._term.writes_from_ms)
        if mode == "fail" and leases_end_ms > now_ms:
            message = f"leases are out for another {leases_end_ms - now_ms} ms; nothing was done"
            self._effects.refuse(request, Refusal(Code.BUSY, message))
            return
        holders = set(table.live_holders(key, now_ms))
        untracked = self._has_untracked_holders(now_ms, key)
        pending = PendingWrite(request, leases_end_ms, self._term.next_version(), holders, untracked)
        state.begin(pending)
        self._pending[key] = state
        self._grants.count(now_ms, state, reads=request.write.hits or 0, writes=1)
        if mode == "callback":
            self._effects.add(CallBack(sorted(holders), Drop(((key, pending.ticket),))))
        self._alarms.set(leases_end_ms, state)
        self._proceed(now_ms, state)

    def _has_untracked_holders(self, now_ms: int, key: bytes) -> bool:
        """Leases of a predecessor, or beyond the bound on tracked holders, end only with time."""
        return now_ms < self._term.writes_from_ms or self._grants.table.has_untracked(key, now_ms)

    # --- storing ---

    def _proceed(self, now_ms: int, state: KeyState) -> None:
        """Store the pending write once no lease on the old value can be valid."""
        pending = state.pending
        if pending is None or pending.token is not None or not pending.may_store(now_ms):
            return
        if not self._term.may_serve(now_ms):
            self._give_up(now_ms, state, pending, _NOT_LEADER)
            return
        token = self._term.next_version()
        pending.start_store(token)
        self._effects.add(Store(state.key, pending.request.write.value, token))

    def acknowledge(self, now_ms: int, client: str, ack: Ack) -> None:
        """A holder has dropped these keys."""
        for index, (key, ticket) in enumerate(ack.dropped):
            hits = ack.hits[index] if index < len(ack.hits) else None
            self._acknowledge_key(now_ms, client, key, ticket, ack.seq, hits)

    def _acknowledge_key(
        self, now_ms: int, client: str, key: bytes, ticket: Version, seq: int, hits: int | None
    ) -> None:
        state = self._pending.get(key)
        pending = state.pending if state is not None else None
        if state is None or pending is None or pending.ticket != ticket or client not in pending.unacked:
            self.acks_ignored += 1  # late, repeated, or not requested: it proves nothing about this write
            return
        pending.acknowledge(client)
        self._grants.table.release(key, client)
        if hits is not None:
            if self._grants.adaptive:  # a call for nothing costs here, once per holder and write
                self._grants.count(now_ms, state, reads=hits)
            self._want_refill(now_ms, state, client, seq)
        if not pending.unacked:
            self._proceed(now_ms, state)

    def stored(self, now_ms: int, event: Stored) -> None:
        """The store has answered a write."""
        key, token = event.key, event.token
        found = self._storing(key, token)
        if found is None:
            return
        state, pending = found
        request = pending.request
        state.commit(request.write.value, token)
        del self._pending[key]
        lease_ms = self._writers_lease_ms(now_ms, state, request)
        self._effects.send(request.client, Outcome(request.write.seq, Code.OK, token, "", lease_ms))
        for client in self._subscriptions.interested(key):
            self._effects.send(client, Changed(((key, token),)))
        self.advance(now_ms, state)

    def _writers_lease_ms(self, now_ms: int, state: KeyState, request: WriteRequest) -> int:
        """How long the writer may keep its value; 0 if it does not want to, or if the next write is queued."""
        if not request.wants_lease or state.queue or not self._term.may_serve(now_ms):
            return 0
        return self._grants.grant(now_ms, state, request.client, request.write.seq)

    def store_unknown(self, now_ms: int, event: StoreUnknown) -> None:
        """The value may reach the store at any time, and only a newer token keeps it out: store again under one."""
        found = self._storing(event.key, event.token)
        if found is not None:
            state, pending = found
            pending.store_unknown(now_ms)
            self._alarms.set(pending.retry_ms, state)

    def store_refused(self, now_ms: int, event: StoreRefused) -> None:
        """The store has seen a newer epoch: close this term."""
        refused = self._storing(event.key, event.token)
        if refused is None:
            return
        self._term.close()
        for state in self._pending.values():
            if state.pending is not None:
                maybe_stored = state.pending.outcome_unknown or (
                    state.pending.token is not None and state is not refused[0]
                )
                code = Code.UNKNOWN if maybe_stored else Code.NOT_SERVING
                self._effects.refuse(state.pending.request, Refusal(code, _DEPOSED))
        for state in self._keys.all():
            for request in state.queue:
                self._effects.refuse(request, Refusal(Code.NOT_SERVING, _DEPOSED))
        self._effects.add(Deposed(f"the store refused token {event.token}: {_DEPOSED}"))

    def _storing(self, key: bytes, token: Version) -> tuple[KeyState, PendingWrite] | None:
        """The write that is being stored under `token`; None if a newer attempt has replaced it."""
        state = self._pending.get(key)
        if state is None or state.pending is None or state.pending.token != token:
            return None
        return state, state.pending

    # --- refills ---

    def _want_refill(self, now_ms: int, state: KeyState, client: str, seq: int) -> None:
        """The client used the old value, so it will soon read the new one: send it when the write has taken effect."""
        state.want_refill(client, seq)

    def _refill(self, now_ms: int, state: KeyState) -> None:
        """No write of this key is pending any more: send its value, under a lease, to the clients that want it."""
        requests = state.take_refills()
        if self._term.may_serve(now_ms):
            self._send_refills(now_ms, state, requests, self._grants.lease_ms(now_ms, state))

    def _send_refills(self, now_ms: int, state: KeyState, requests: dict[str, int], lease_ms: int) -> None:
        if lease_ms <= 0:
            return  # no client waits for a refill, and without a lease it is useless
        self._grants.table.grant_all(state.key, requests, now_ms + lease_ms)
        self._effects.add(Refilled(requests, Item(state.key, state.value, state.version, lease_ms)))

    # --- ending without effect ---

    def on_alarm(self, now_ms: int, state: KeyState) -> None:
        """Refuse writes whose time has run out, store the pending one if it may be, and set the next alarm."""
        for request in state.take_expired(now_ms):
            self._effects.refuse(request, _EXPIRED_IN_QUEUE)
        pending = state.pending
        if pending is not None and pending.has_expired(now_ms):
            self._give_up(now_ms, state, pending, _EXPIRED)
        self._proceed(now_ms, state)
        self._alarms.set(max(now_ms + 1, state.due_ms()), state)

    def fail_load(self, state: KeyState, reason: str) -> None:
        """The key's value is unavailable, so no write of it can begin."""
        for request in state.queue:
            message = f"the store behind the cache could not be read: {reason}"
            self._effects.refuse(request, Refusal(Code.UNAVAILABLE, message))

    def _give_up(self, now_ms: int, state: KeyState, pending: PendingWrite, refusal: Refusal) -> None:
        """End a write that was not stored. Holders that dropped the value read it again."""
        code = Code.UNKNOWN if pending.outcome_unknown else refusal.code
        self._effects.refuse(pending.request, Refusal(code, refusal.message))
        state.abandon()
        del self._pending[state.key]
        self.advance(now_ms, state)

    # --- clients that come and go ---

    def remind(self, client: str) -> None:
        """Repeat the callbacks that `client` has not acknowledged: they may have been lost with its connection."""
        for state in self._pending.values():
            if state.pending is not None and client in state.pending.unacked:
                self._effects.send(client, Drop(((state.key, state.pending.ticket),)))

    def forget_wishes(self, client: str) -> None:
        """A disconnected client gets no refill and no lease, which the next write would have to wait for."""
        for state in self._pending.values():
            state.cancel_refill(client)
            for request in (*state.queue, *([state.pending.request] if state.pending is not None else [])):
                if request.client == client:
                    request.decline_lease()

    def release(self, now_ms: int, client: str) -> None:
        """The client has dropped everything: no write waits for it."""
        for state in list(self._pending.values()):
            if state.pending is not None and client in state.pending.unacked:
                state.pending.acknowledge(client)
                self._proceed(now_ms, state)

    def check(self) -> None:
        """Raise `InvariantBroken` unless the invariants hold."""
        pending = {state.key for state in self._keys.all() if state.pending is not None}
        ensure(pending == set(self._pending), "the list of pending writes is wrong", pending, list(self._pending))
