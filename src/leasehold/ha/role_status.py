"""What a node is, and why: one role, one sentence. Said aloud, kept in the history, told in `nodes/{name}`."""

from __future__ import annotations

from leasehold.ha.context import Context
from leasehold.ha.effects import ChangeRole, Role
from leasehold.ha.node_values import ConfirmedSnapshot, NodeValue
from leasehold.ha.publisher import Publisher
from leasehold.journal.batch import READS
from leasehold.journal.snapshot_file import VERSION_NEWEST as SNAPSHOT_VERSION_NEWEST


class Standing:
    """The machine decides what this node becomes; here it is put into words, once for each change."""

    __slots__ = ("_ctx", "history", "role", "sentence")

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.role = Role.FOLLOWER
        self.sentence = "Just started."
        self.history: Publisher | None = None  # of the epoch that this node leads: only a leader writes history

    @property
    def ready(self) -> bool:
        """Whether this node may be promoted, or serves."""
        return self.role in (Role.STANDBY, Role.PRIMARY)

    def become(self, role: Role, sentence: str, *, serious: bool = False, counts: dict[str, int] | None = None) -> None:
        """Change the role. If it is that already, nothing is said, except a grave reason that is new."""
        if role is self.role:
            if serious and sentence != self.sentence:
                self.sentence = sentence
                self._ctx.desk.say(sentence, serious=True)
            return
        self.role, self.sentence = role, sentence
        self._ctx.desk.do(ChangeRole(role, sentence))
        self._note(sentence, counts or {})

    def warn(self, sentence: str) -> None:
        """The role stays, but people must see this, also later."""
        self._ctx.desk.say(sentence, serious=True)
        self._note(sentence, {})

    def _note(self, sentence: str, counts: dict[str, int]) -> None:
        if self.history is not None:
            self.history.note(self.role, sentence, counts)

    def value(self, snapshots: tuple[ConfirmedSnapshot, ...], pin_n: int) -> NodeValue:
        """What the other nodes are told: this standing, how far this node is, and where it can be reached."""
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
        )
