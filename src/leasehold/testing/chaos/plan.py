"""The faults of a run, derived from its seed: kinds, victims, durations and pauses. Pure."""

from __future__ import annotations

import enum
import random
from collections.abc import Iterator
from typing import Final

from msgspec import Struct


class Group(enum.Enum):
    """The groups of faults that the report counts."""

    KILL = "kill"
    PAUSE = "pause"
    CUT = "cut"
    STORE = "etcd"
    OTHER = "other"


class Kind(Struct, frozen=True):
    """One kind of fault. `weight`: how often a deck has it. `hold_ms`: how long it lasts, if it has a duration."""

    name: str
    group: Group
    weight: int
    meaning: str
    hold_ms: tuple[int, int] = (0, 0)
    counts_as: tuple[Group, ...] = ()  # further groups


_KINDS: Final = (
    Kind("kill-worker", Group.KILL, 9, "kill -9 of the primary's worker: a crash of the process"),
    Kind("kill-guardian", Group.KILL, 3, "kill -9 of the primary's guardian: its worker must exit too"),
    Kind("kill-node", Group.KILL, 4, "kill -9 of the primary's guardian and worker: the host dies", (500, 3000)),
    Kind("kill-standby", Group.KILL, 2, "kill -9 of a standby's guardian and worker", (500, 2000)),
    Kind("kill-etcd", Group.KILL, 2, "kill -9 of etcd's leader", (500, 3000), (Group.STORE,)),
    Kind("kill-host", Group.KILL, 2, "kill -9 of a storage host, and a new one at its address", (200, 3000)),
    Kind("pause-worker", Group.PAUSE, 3, "SIGSTOP of the primary's worker, then SIGCONT", (500, 5000)),
    Kind("pause-node", Group.PAUSE, 4, "SIGSTOP of the primary's guardian and worker, then SIGCONT", (500, 6000)),
    Kind("pause-standby", Group.PAUSE, 1, "SIGSTOP of a standby, then SIGCONT", (1000, 6000)),
    Kind("pause-host", Group.PAUSE, 1, "SIGSTOP of a storage host, then SIGCONT", (500, 4000)),
    Kind("freeze-etcd", Group.PAUSE, 2, "SIGSTOP of etcd's leader, then SIGCONT", (1000, 6000), (Group.STORE,)),
    Kind("freeze-quorum", Group.PAUSE, 1, "SIGSTOP of two of three etcd members", (1000, 5000), (Group.STORE,)),
    Kind("slow-etcd", Group.PAUSE, 1, "etcd's leader runs 30 of every 100 ms", (3000, 6000), (Group.STORE,)),
    Kind("cut-primary-to-etcd", Group.CUT, 2, "packets from the primary to etcd are lost", (1000, 5000)),
    Kind("cut-etcd-to-primary", Group.CUT, 2, "packets from etcd to the primary are lost", (1000, 5000)),
    Kind("cut-standby-to-etcd", Group.CUT, 1, "packets from a standby to etcd are lost", (1000, 5000)),
    Kind("cut-etcd-to-standby", Group.CUT, 1, "packets from etcd to a standby are lost", (1000, 5000)),
    Kind("cut-clients-to-primary", Group.CUT, 2, "packets from all clients to the primary are lost", (500, 4000)),
    Kind("cut-primary-to-clients", Group.CUT, 2, "packets from the primary to all clients are lost", (500, 4000)),
    Kind("cut-etcd-leader-to-etcd", Group.CUT, 1, "packets from etcd's leader to the members are lost", (1000, 5000)),
    Kind("cut-etcd-to-etcd-leader", Group.CUT, 1, "packets from the members to etcd's leader are lost", (1000, 5000)),
    Kind("etcd-leader-change", Group.STORE, 1, "etcd's leader hands its leadership to another member"),
    Kind(
        "compaction", Group.STORE, 1, "etcd is compacted at its newest revision while a standby is stopped", (500, 2000)
    ),
    Kind("restart-with-snapshot", Group.OTHER, 1, "SIGTERM of the primary, and a start from its own snapshot"),
    Kind("wipe-standby", Group.OTHER, 1, "a standby loses its disk and is rebuilt from a peer's snapshot"),
    Kind("full-disk", Group.OTHER, 1, "the disk of a node's snapshots is full", (2000, 5000)),
    Kind("clock-jump", Group.OTHER, 1, "the wall clock of a node jumps by up to an hour, and back", (1000, 3000)),
    Kind("switchover", Group.OTHER, 2, "an operator moves the leadership"),
    Kind("rolling-restart", Group.OTHER, 1, "every node is restarted, one after the other"),
    Kind("rolling-version", Group.OTHER, 1, "every node is restarted with the other release, one after the other"),
)
KINDS: Final = {kind.name: kind for kind in _KINDS}


class Fault(Struct, frozen=True):
    """One fault of the plan. `choice` picks the victim where there are several; `pause_ms` precedes it."""

    number: int
    kind: str
    hold_ms: int
    pause_ms: int
    choice: float


def faults(seed: int, without: frozenset[str] = frozenset()) -> Iterator[Fault]:
    """Faults without end. First each kind once, in random order; then decks in which each has its weight."""
    chance = random.Random(f"faults {seed}")
    names = [name for name in KINDS if name not in without]
    number = 0
    deck = list(names)
    while True:
        chance.shuffle(deck)
        for name in deck:
            low, high = KINDS[name].hold_ms
            yield Fault(number, name, chance.randint(low, high), chance.randint(300, 2000), chance.random())
            number += 1
        deck = [name for name in names for _ in range(KINDS[name].weight)]
