"""The effects of one event, collected while the authority's machine handles it. Pure.

Invariant: `take` empties the list, so every effect leaves once, in the order in which it was added.
"""

from __future__ import annotations

from msgspec import Struct

from leasehold.base.invariants import ensure
from leasehold.cache.events import Effect, Send
from leasehold.cache.key_state import WriteRequest
from leasehold.cache.model import ABSENT, Code, FromAuthority, Outcome, Version


class Refusal(Struct, frozen=True):
    """Why a write was not done; on CONFLICT with the key's current version."""

    code: Code
    message: str
    version: Version = ABSENT


class Effects:
    def __init__(self) -> None:
        self._effects: list[Effect] = []

    def add(self, effect: Effect) -> None:
        """Add an effect."""
        self._effects.append(effect)

    def send(self, client: str, message: FromAuthority) -> None:
        """Send a message to a client."""
        self._effects.append(Send(client, message))

    def refuse(self, request: WriteRequest, refusal: Refusal) -> None:
        """Send the outcome of a rejected write."""
        outcome = Outcome(request.write.seq, refusal.code, refusal.version, refusal.message)
        self._effects.append(Send(request.client, outcome))

    def take(self) -> list[Effect]:
        """The effects since the last call, in order."""
        effects, self._effects = self._effects, []
        return effects

    def check(self) -> None:
        """Raise `InvariantBroken` unless the invariants hold."""
        ensure(not self._effects, "an effect was left behind by the event before", self._effects)
