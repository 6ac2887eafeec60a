"""The authority's reads: answers, and the loads they wait for. Pure.

Invariant: a request is answered once, when the value of every key in it is known.
"""

from __future__ import annotations

from leasehold.base.invariants import ensure
from leasehold.cache.authority_effects import Effects
from leasehold.cache.authority_grants import Grants
from leasehold.cache.authority_keys import Keys
from leasehold.cache.authority_term import AuthorityTerm
from leasehold.cache.checks import objection_to_ask
from leasehold.cache.key_state import KeyState, PendingRead
from leasehold.cache.model import ABSENT, Answer, Ask, Code, Item


class Reads:
    def __init__(self, term: AuthorityTerm, keys: Keys, grants: Grants, effects: Effects) -> None:
        self._term = term
        self._keys = keys
        self._grants = grants
        self._effects = effects

    def ask(self, now_ms: int, client: str, ask: Ask) -> None:
        """Answer a request now, or once its missing keys are loaded."""
        refusal = Code.NOT_SERVING if not self._term.may_serve(now_ms) else objection_to_ask(ask)
        if refusal is not None:
            items = tuple(Item(key, None, ABSENT, 0, refusal) for key in ask.keys)
            self._effects.send(client, Answer(ask.seq, items))
            return
        read = PendingRead(client, ask.seq, len(ask.keys))
        for index, key in enumerate(ask.keys):
            state = self._keys.touch(now_ms, key)
            if self._grants.adaptive:
                self._grants.count(now_ms, state, reads=1 + (ask.hits[index] if index < len(ask.hits) else 0))
            if state.known:
                read.put(index, self._grants.item(now_ms, state, client, ask.seq))
            else:
                state.wait_for_load(read, index)
                self._keys.load(state)
        self._answer_if_complete(read)
        self._keys.shrink()

    def answer_loaded(self, now_ms: int, state: KeyState) -> None:
        """Answer the readers that waited for this key."""
        for read, index in state.take_readers():
            if self._term.may_serve(now_ms):
                read.put(index, self._grants.item(now_ms, state, read.client, read.seq))
            else:
                read.put(index, Item(state.key, None, ABSENT, 0, Code.NOT_SERVING))
            self._answer_if_complete(read)

    def fail_load(self, state: KeyState) -> None:
        """The store could not be read: answer `UNAVAILABLE` for this key."""
        for read, index in state.take_readers():
            read.put(index, Item(state.key, None, ABSENT, 0, Code.UNAVAILABLE))
            self._answer_if_complete(read)

    def _answer_if_complete(self, read: PendingRead) -> None:
        if read.missing == 0:
            self._effects.send(read.client, Answer(read.seq, read.items()))

    def check(self) -> None:
        """Raise `InvariantBroken` unless the invariants hold."""
        for state in self._keys.all():
            for read, _ in state.readers:
                ensure(read.missing > 0, "a complete answer was not sent", state.key, read.client)
