"""A node's role and the reason for it: logged, kept in the history, and published in `nodes/{name}`."""

from __future__ import annotations

from leasehold.ha.context import Context
from leasehold.ha.effects import ChangeRole, Role
from leasehold.ha.node_values import ConfirmedSnapshot, NodeValue
from leasehold.ha.publisher import Publisher
from leasehold.index.features import LEVEL_NEWEST
from leasehold.journal.batch import READS
from leasehold.journal.snapshot_file import VERSION_NEWEST as SNAPSHOT_VERSION_NEWEST


class RoleStatus:
    """One role, one sentence. `Roles` decides the role; each change is logged once."""

    __slots__ = ("_ctx", "_history", "role", "sentence")

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.role = Role.FOLLOWER
        self.sentence = "Just started."
        self._history: Publisher | None = None  # set while this node leads: only a leader writes history

    @property
    def ready(self) -> bool:
        """Whether this node may be promoted, or serves."""
        return self.role in (Role.STANDBY, Role.PRIMARY)

    def become(self, role: Role, sentence: str, *, serious: bool = False, counts: dict[str, int] | None = None) -> None:
        """Change the role. If it is unchanged, nothing is logged, except a new serious reason."""
        if role is self.role:
            if serious and sentence != self.sentence:
                self.sentence = sentence
                self._ctx.effects.say(sentence, serious=True)
            return
        self.role, self.sentence = role, sentence
        self._ctx.effects.do(ChangeRole(role, sentence))
        self._add_history(sentence, counts or {})

    def elected(self, sentence: str) -> None:
        """Remember the sentence of a promotion: it is logged when `begin` is durable and the role changes."""
        self.sentence = sentence

    def write_history_to(self, publisher: Publisher | None) -> None:
        """Write the history through `publisher`, or stop writing it."""
        self._history = publisher

    def warn(self, sentence: str) -> None:
        """Log a warning and add it to the history; the role does not change."""
        self._ctx.effects.say(sentence, serious=True)
        self._add_history(sentence, {})

    def _add_history(self, sentence: str, counts: dict[str, int]) -> None:
        if self._history is not None:
            self._history.add_history(self.role, sentence, counts)

    def value(self, snapshots: tuple[ConfirmedSnapshot, ...], pin_n: int) -> NodeValue:
        """The value for the other nodes: role, applied position and addresses."""
        state, who = self._ctx.state, self._ctx.identity
        return NodeValue(
            name=who.name,
            run=who.run,
            role=self.role.value,
            ready=self.ready,
            applied_n=state.applied.n,
            applied_epoch=state.applied.epoch,
            reads=READS,
            reads_snapshots=SNAPSHOT_VERSION_NEWEST,
            snapshots=snapshots,
            pin_n=pin_n,
            quarantined_records=len(state.quarantined_records),
            rpc=who.rpc,
            door=who.door,
            admin=who.admin,
            reads_level=LEVEL_NEWEST,
        )
