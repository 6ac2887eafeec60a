"""Deletes a leader key that no living leader owns: a forged value outlives the leader that it replaced."""

from __future__ import annotations

from leasehold.ha.context import FAR_MS, Context
from leasehold.ha.effect_queue import Activity
from leasehold.ha.events import StoreAnswered
from leasehold.mvcc.model import Compare, CompareResult, CompareTarget, DeleteRange, Txn


class ForgedKey(Activity):
    """A living leader restores its key within a beat. If the same forged value stays for a leader's term, its leader is
    dead: a follower deletes the key, and then campaigns as usual.

    Deleting is safe even if that leader lives: its writes are fenced by the key's create revision, and a successor
    waits until the old leader lease has expired.
    """

    __slots__ = ("_ctx", "_deleting", "_revision", "_since_ms")

    def __init__(self, ctx: Context) -> None:
        super().__init__()
        self._ctx = ctx
        self._revision = 0  # of the forged value
        self._since_ms = FAR_MS
        self._deleting = False

    @property
    def wake_at_ms(self) -> int:
        if self._since_ms == FAR_MS or self._deleting:
            return FAR_MS
        return self._since_ms + self._ctx.settings.leader_ttl_ms

    def follow(self, now_ms: int) -> None:
        """As a follower: see whether the leader key is forged, and for how long."""
        leader = self._ctx.view.leader
        if leader is None or leader.trusted:
            self.rest()
        elif leader.revision != self._revision:
            self._revision, self._since_ms = leader.revision, now_ms
            self._ctx.effects.say(
                f"The leader key holds a value that no node of this cluster wrote: it names '{leader.value.name}'. "
                "Nothing is forwarded there.",
                serious=True,
            )
        elif now_ms >= self.wake_at_ms and not self._deleting:
            self._delete(leader.revision)

    def rest(self) -> None:
        """The key is in order, or this node leads."""
        self._revision, self._since_ms = 0, FAR_MS

    def _delete(self, revision: int) -> None:
        self._deleting = True
        key = self._ctx.keys.leader
        txn = Txn(
            compare=(Compare(key, CompareTarget.MOD, CompareResult.EQUAL, revision),), success=(DeleteRange(key),)
        )
        self._ctx.effects.say("No leader restored its forged key: deleting it.", serious=True)
        self._ctx.effects.ask(self, txn, self._deleted)

    def _deleted(self, now_ms: int, event: StoreAnswered) -> None:
        self._deleting = False
        self._since_ms = now_ms  # until the watch shows the deletion, or for another attempt
