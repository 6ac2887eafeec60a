"""What kind of world a seed makes: how many nodes, how tight the pool, which policy, how much goes wrong."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass

from leasehold.ha.settings import HaSettings
from leasehold.index.settings import IndexSettings
from leasehold.testing.sim.ambush import kinds_for

BLOCK = 4096
BASE = 0x10_0000_0000
PIN_MS = 24 * 3_600_000  # a soft pin that outlasts every seed

BUGS = (
    "no-fence",  # journal writes are not fenced
    "early-put-end",  # put_end is acknowledged before its record is durable
    "early-space",  # put_start is answered before its record is durable
    "no-grace",  # `begin` forgets the grace
    "no-wait",  # a successor does not wait for the old primary's right to end
    "no-right",  # a primary answers for as long as it believes to be one
    "early-miss",  # an answer that shows a removal by a miss does not wait for the removal to be durable
    "no-limbo",  # space of a removed object is free at once
    "no-skip",  # a removal by pattern takes what is leased, too
    "early-copy",  # readers are told of a copy before it is complete
    "forget-pin",  # a successor forgets pins
    "trust-owners",  # nobody waits for the owners of memory after a restart of everything
)


@dataclass(frozen=True)
class Plan:
    """Everything about a world that is fixed at its beginning."""

    nodes: int
    hosts: int
    writers: int
    readers: int
    keys: int
    segment_blocks: int
    roomy: bool  # the pool never fills: nothing may ever be evicted
    faults_every_ms: int
    think_ms: float  # how long clients pause between two calls, at most
    ha: HaSettings
    index: IndexSettings
    drift: float
    mixed: bool  # nodes are configured with different lease terms and leader TTLs (a rolling change of settings)
    unheard: bool  # leaders may be deposed without hearing of it: only the fence, or the end of their right, tells them
    copies: bool  # objects are copied and moved between hosts
    lonely: bool  # one node is down for nearly all of the time
    piece_objects: int  # records that a node applies in one step: it can be paused or killed in the middle of a batch
    work_ms: int  # how often a leader does what is due by its clock, where no request makes it
    groups: int  # how many groups there are; few are large
    changing: bool  # every start of a node may bring other settings: leases shorter and longer, another policy
    ambush: frozenset[str]  # misfortunes that wait for their moment: see `ambush`
    store_keeps_expiry: bool  # a restarted store gives leases their remaining time (embedded), or all of it (etcd)

    @property
    def soft_pins_hold(self) -> bool:
        """Whether what is soft-pinned is never evicted as long as a seed lasts."""
        index = self.index
        held = not index.allow_evict_soft_pinned or index.eviction_policy == "expiry"
        return held and index.soft_pin_ttl_ms == PIN_MS and not self.changing


def plan_for(seed: int) -> Plan:
    """The world of a seed; its own chance, so that later draws do not change it."""
    chance = random.Random(f"plan-{seed}")
    roomy = chance.random() < 0.5
    policy = "expiry" if chance.random() < 0.3 else "pressure"
    keys = chance.choice((6, 12, 24))
    more = random.Random(f"more-{seed}")
    lease_ttl_ms = chance.choice((2_000, 4_000, 8_000))
    ha = HaSettings(
        durability="buffered" if chance.random() < 0.15 else ("async" if more.random() < 0.12 else "sync"),
        async_records_max=more.choice((3, 50)),
        journal_full=more.choice(("one_copy", "one_copy", "refuse")),
        copies=chance.choice((1, 2, 2)),
        snapshot_records=chance.choice((40, 120, 400)),
        snapshot_ms=random.Random(f"age-{seed}").choice((60_000, 60_000, 2_000)),
        journal_batches_max=random.Random(f"bound-{seed}").choice((20, 50, 1_000_000)),
        snapshot_tables=chance.choice((1024, 4096, 16384)),
        store_timeout_ms=chance.choice((300, 1_000)),
        verify_ms=10_000,
        call_deadline_ms=6_000,
        unlogged_ttl_s=chance.choice((10, 60)),
    )
    index = IndexSettings(
        lease_ttl_ms=lease_ttl_ms,
        eviction_policy=policy,
        client_ttl_ms=10_000,
        put_discard_ms=3_000,
        put_release_ms=10_000,
        eviction_high_watermark=1.0 if roomy else 0.8,
        eviction_ratio=0.2,
        soft_pin_ttl_ms=more.choice((5_000, PIN_MS)),
        allow_evict_soft_pinned=more.random() < 0.5,
    )
    return Plan(
        nodes=chance.choice((2, 3, 3)),
        hosts=2,
        writers=chance.choice((2, 3)),
        readers=chance.choice((1, 2, 3)),
        keys=keys,
        segment_blocks=2_000 if roomy else keys + 6,
        roomy=roomy,
        faults_every_ms=chance.choice((1_500, 3_000, 6_000)),
        think_ms=chance.choice((60.0, 200.0, 500.0)),
        ha=ha,
        index=index,
        drift=ha.drift,
        piece_objects=random.Random(f"pieces-{seed}").choice((1, 4, 100)),
        store_keeps_expiry=chance.random() < 0.3,
        mixed=chance.random() < 0.2,
        unheard=chance.random() < 0.25,
        copies=more.random() < 0.7,
        work_ms=random.Random(f"work-{seed}").choice((250, 250, 250, 50, 1_500, 6_000)),
        groups=random.Random(f"groups-{seed}").choice((2, 2, 2, 1)),
        changing=random.Random(f"changing-{seed}").random() < 0.15,
        ambush=kinds_for(seed),
        lonely=more.random() < 0.1,
    )


def settings_of(plan: Plan, chance: random.Random, other: random.Random) -> tuple[HaSettings, IndexSettings]:
    """How one run of one node is configured."""
    ha, index = plan.ha, plan.index
    if plan.mixed:
        ha = dataclasses.replace(ha, leader_ttl_ms=chance.choice((3_000, 5_000)))
        index = dataclasses.replace(index, lease_ttl_ms=chance.choice((2_000, 5_000, 9_000)))
    return (ha, _changed(index, other)) if plan.changing else (ha, index)


def _changed(index: IndexSettings, chance: random.Random) -> IndexSettings:
    return dataclasses.replace(
        index,
        lease_ttl_ms=chance.choice((200, 1_000, 4_000, 9_000)),
        eviction_policy=chance.choice((index.eviction_policy, "pressure", "expiry")),
        soft_pin_renew_on_read=chance.random() < 0.5,
    )
