"""The state that the parts of one node's machine share. Pure."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from leasehold.ha.applied_state import AppliedState
from leasehold.ha.effect_queue import EffectQueue
from leasehold.ha.keys import Keys, LeaderValue
from leasehold.ha.settings import HaSettings
from leasehold.ha.signing import Signer
from leasehold.ha.view import View
from leasehold.index.index import Index
from leasehold.journal.batch import READS

FAR_MS = 1 << 62  # later than any time


class Identity(Struct, frozen=True):
    """A node's name and addresses. `run` names one run of its process: the guardian gives up only that run's key."""

    name: str
    run: str
    cluster: str
    prefix: str = "/leasehold"
    rpc: str = ""
    door: str = ""
    admin: str = ""
    views: tuple[tuple[str, str], ...] = ()  # (Mooncake cluster, address) for `mooncake-store/{cluster}/master_view`


class Context:
    """One node's identity, settings, view of the cluster and state."""

    __slots__ = ("effects", "identity", "keys", "settings", "signer", "state", "view", "wall_us")

    def __init__(
        self,
        identity: Identity,
        settings: HaSettings,
        make_index: Callable[[], Index],
        signer: Signer | None = None,
    ) -> None:
        settings.check()
        self.identity = identity
        self.settings = settings
        self.keys = Keys(identity.cluster, identity.prefix)
        self.effects = EffectQueue(settings.store_timeout_ms)
        self.signer = signer or Signer()
        self.view = View(self.keys, self.signer)
        self.state = AppliedState(make_index)
        self.wall_us = 0  # of the present event, for people to read

    def begin_event(self, now_ms: int, wall_us: int) -> None:
        """An event is handled at this time."""
        self.wall_us = wall_us
        self.effects.begin_event(now_ms)

    def leader_value(self, lease: int) -> LeaderValue:
        """The value of the leader key while this node leads under `lease`."""
        who = self.identity
        value = LeaderValue(who.name, who.run, who.rpc, who.door, who.admin)
        return self.signer.signed(value, self.keys.leader, lease)

    def writes(self) -> int:
        """The format version of new batches: the newest that every live node reads."""
        return min([READS[1], *(node.reads[1] for node in self.view.nodes.values())])
