"""The keys that the authority has in memory, least recently used first. Pure.

Invariants:
- a key that is being loaded or written is never forgotten;
- with `keeps_all` the memory is the only copy: only absent keys are forgotten;
- beyond `entries_max` there are only keys that may not be forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable

from leasehold.base.invariants import ensure
from leasehold.cache.authority_effects import Effects
from leasehold.cache.events import Load
from leasehold.cache.key_state import KeyState
from leasehold.leases.adaptive import Rates


class Keys:
    def __init__(self, entries_max: int, effects: Effects, *, keeps_all: bool) -> None:
        self._entries_max = entries_max
        self._effects = effects
        self._keeps_all = keeps_all
        self._states: dict[bytes, KeyState] = {}

    def touch(self, now_ms: int, key: bytes) -> KeyState:
        """The state of `key`, made if need be, and now the most recently used."""
        state = self._states.pop(key, None)
        if state is None:
            state = KeyState(key, Rates(now_ms))
        self._states[key] = state
        return state

    def __len__(self) -> int:
        return len(self._states)

    def get(self, key: bytes) -> KeyState | None:
        """The state of a key if it is in memory."""
        return self._states.get(key)

    def all(self) -> Iterable[KeyState]:
        """Every key in memory."""
        return self._states.values()

    def forget(self, key: bytes) -> None:
        """Drop a key from memory."""
        del self._states[key]

    def load(self, state: KeyState) -> None:
        """Read the key from the store, unless that is on its way."""
        if not state.loading:
            state.start_load()
            self._effects.add(Load(state.key))

    def loading(self, key: bytes) -> KeyState | None:
        """The state of `key` if the store's answer is awaited."""
        state = self._states.get(key)
        return state if state is not None and state.loading else None

    def shrink(self) -> None:
        """Forget the least recently used keys. Their leases are recorded elsewhere and stay valid."""
        while len(self._states) > self._entries_max:
            # With `keeps_all` nearly all keys have a value and must stay; absent ones are among the latest used.
            states = reversed(self._states.values()) if self._keeps_all else iter(self._states.values())
            found = next((state for state in states if self._dispensable(state)), None)
            if found is None:
                return
            del self._states[found.key]

    def has_no_space_for(self, state: KeyState) -> bool:
        """Whether a new key cannot be kept. With a store behind, memory is never short: keys are forgotten."""
        return self._keeps_all and not state.known and len(self._states) > self._entries_max

    def _dispensable(self, state: KeyState) -> bool:
        return state.idle() and (state.value is None or not self._keeps_all)

    def check(self) -> None:
        """Raise `InvariantBroken` unless the invariants hold."""
        for key, state in self._states.items():
            ensure(state.key == key, "a key has the state of another", key, state.key)
            state.check()
