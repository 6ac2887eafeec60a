"""Network namespaces, one for each machine of a run, and cuts between them in one direction.

Every machine, and the namespace of the run with its clients, has a link to a router in a namespace of its own. A cut is
a routing rule of the router that discards packets from one address to another: connections stay open, and neither side
gets an error.
"""

from __future__ import annotations

from msgspec import Struct

from leasehold.testing.chaos.sandbox import run
from leasehold.testing.process import Place

CLIENTS = "10.77.0.2"  # the address of the run itself, and so of its clients
_ROUTER = ("ip", "netns", "exec", "router")


class Cut(Struct, frozen=True):
    """Packets from one address to another are discarded."""

    source: str
    target: str


class Network:
    """The machines of a run. `add` creates one, `cut` and `heal` change what passes between them."""

    def __init__(self) -> None:
        self._links = 0
        self._cuts: set[Cut] = set()
        run("ip", "netns", "add", "router")
        run(*_ROUTER, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
        self._link(())

    def add(self, name: str) -> Place:
        """A new machine with an address of its own."""
        run("ip", "netns", "add", name)
        inside = ("ip", "netns", "exec", name)
        run(*inside, "ip", "link", "set", "lo", "up")
        return Place(self._link(inside), inside)

    def _link(self, inside: tuple[str, ...]) -> str:
        """Connect a namespace with the router, and return its address."""
        number, self._links = self._links, self._links + 1
        address, router = f"10.77.{number}.2", f"10.77.{number}.1"
        run(*inside, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", f"v{number}", "netns", "router")
        run(*inside, "ip", "addr", "add", f"{address}/30", "dev", "eth0")
        run(*inside, "ip", "link", "set", "eth0", "up")
        run(*_ROUTER, "ip", "addr", "add", f"{router}/30", "dev", f"v{number}")
        run(*_ROUTER, "ip", "link", "set", f"v{number}", "up")
        run(*inside, "ip", "route", "add", "default", "via", router)
        return address

    def cut(self, *cuts: Cut) -> None:
        for cut in cuts:
            if cut not in self._cuts:
                self._cuts.add(cut)
                run(*_ROUTER, "ip", "rule", "add", *_rule(cut))

    def heal(self, *cuts: Cut) -> None:
        for cut in cuts:
            if cut in self._cuts:
                self._cuts.discard(cut)
                run(*_ROUTER, "ip", "rule", "del", *_rule(cut))

    def heal_all(self) -> None:
        self.heal(*tuple(self._cuts))


def _rule(cut: Cut) -> list[str]:
    return ["from", cut.source, "to", cut.target, "blackhole"]
