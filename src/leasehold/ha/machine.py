"""One node: index, journal and roles put together. Pure: `handle(now_ms, event) -> effects`.

    machine = NodeMachine(identity, ha_settings, make_index)
    effects = machine.handle(now_ms, Started())

The shell carries the effects out and comes back with events; it calls `handle(now_ms, Ticked())` when
`machine.wake_at_ms` is reached. The way of a client's command, without a detour through `handle`:

    if not machine.may_serve(now_ms): refuse, try elsewhere (never "no such key")
    answer, after = machine.index.some_command(machine.leader_ms(now_ms), ...)
    gate.hold(now_ms, after, answer) or send at once if after <= machine.acked_n
    effects = machine.handle(now_ms, Decided())        # once for a burst of commands

and after every `handle`: `gate.release(now_ms, machine)`.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from leasehold.ha.effects import NodeEffect, Role
from leasehold.ha.events import NodeEvent
from leasehold.ha.settings import HaSettings


class Identity(Struct, frozen=True):
    """Who this node is. `run` names one run of its process: the guardian gives up that run's key, no other."""

    name: str
    run: str
    cluster: str
    prefix: str = "/leasehold"
    rpc: str = ""
    door: str = ""
    admin: str = ""
    views: tuple[
        tuple[str, str], ...
    ] = ()  # (Mooncake cluster name, address) for `mooncake-store/{cluster}/master_view`


class NodeMachine:
    """Attributes that the hot path reads: `index`, `durable_n`, `acked_n`; methods: `may_serve`, `leader_ms`."""

    role: Role
    wake_at_ms: int
    durable_n: int
    acked_n: int

    def __init__(self, identity: Identity, settings: HaSettings, make_index: Callable[[], object]) -> None:
        raise NotImplementedError

    def handle(self, now_ms: int, event: NodeEvent) -> list[NodeEffect]:
        """Take one event; what is to be done about it."""
        raise NotImplementedError

    def may_serve(self, now_ms: int) -> bool:
        """Whether an answer may leave at this moment: primary, and the right to serve holds."""
        raise NotImplementedError

    def leader_ms(self, now_ms: int) -> int:
        """The leader's time: milliseconds since this epoch began, on this node's clock."""
        raise NotImplementedError
