"""The parameters of the world that a seed creates: nodes, pool size, policy, faults."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass
from typing import Any

from leasehold.ha.settings import HaSettings
from leasehold.index.settings import IndexSettings
from leasehold.testing.sim.targeted_faults import TargetedFault, targeted_faults_for

BLOCK = 4096
BASE = 0x10_0000_0000
PIN_MS = 24 * 3_600_000  # a soft pin longer than every run

ADOPTED_FROM_SEED = 100_000  # older seeds have no adopted pools: those that once found a bug must stay the same

BUGS = (
    "no-fence",  # journal writes are not fenced
    "early-put-end",  # put_end is acknowledged before its record is durable
    "early-space",  # put_start is answered before its record is durable
    "no-grace",  # `begin` gives no grace
    "no-wait",  # a successor does not wait until the old leader lease has expired
    "no-lease",  # a primary answers without checking its leader lease
    "early-miss",  # an answer that shows a removal by a miss does not wait for the removal to be durable
    "no-quarantine",  # space of a removed object is free immediately
    "no-skip",  # a removal by pattern also removes leased objects
    "early-copy",  # readers see a copy before it is complete
    "forget-pin",  # a successor forgets pins
    "trust-owners",  # the leader does not wait for the owners of memory after a restart of everything
    "early-drain",  # a drain job is acknowledged before its record is durable
    "snapshot-without-drains",  # snapshots lack the drain jobs
    "drain-ends-early",  # a drain job succeeds although objects are left
    "drained-is-placeable",  # a draining host takes new objects
    "early-quota",  # a quota is acknowledged before its record is durable
    "snapshot-without-quotas",  # snapshots lack the quotas
    "quota-never-released",  # space that leaves its object stays charged
    "quota-after-the-put",  # a put itself does not count
    "quota-evicts-leased",  # leased objects are evicted for a quota
    "early-event",  # an event is published before its record is durable
    "silent-overflow",  # dropped events are not followed by a reload
    "resume-any-epoch",  # a new leader lets every subscriber continue
    "page-wins",  # a page overwrites later events
    "late-page",  # a subscriber takes a late answer for the page that it requested
    "adopt-before-the-cut",  # objects are listed while clients of the old master still reach it
    "old-master-wakes",  # the old master is only stopped, and goes on handing out memory
    "unlisted-not-quarantined",  # space without an adopted object is free immediately
    "bind-by-endpoint",  # a restarted storage host gets the objects of the one before
    "adopt-own-grace",  # adopted objects get the new master's lease term only
    "notice-of-any-version",  # a notice about a file counts for the present version of its key
    "notice-creates",  # a notice about an unknown file creates an object
    "sent-to-the-silent",  # readers are sent to disks whose owner is silent
    "memory-takes-all",  # an object that leaves memory leaves the disks too
    "early-promotion",  # space for a version on disk is handed out before its record is durable
    "promotion-again",  # a promotion that failed may be repeated immediately
    "snapshot-without-disks",  # snapshots lack the versions on disk
    "forgets-nothing-removed",  # removed objects stay on disk
    "early-page",  # a page shows what is not published yet, and pages do not wait for dropped events
)


@dataclass(frozen=True)
class Plan:
    """The parameters of a world; they do not change during a run."""

    nodes: int
    hosts: int
    writers: int
    readers: int
    keys: int
    segment_blocks: int
    roomy: bool  # the pool never fills: nothing may be evicted
    faults_every_ms: int
    think_ms: float  # longest pause of a client between two calls
    ha: HaSettings
    index: IndexSettings
    drift: float
    mixed: bool  # nodes have different lease terms and leader TTLs, as during a rolling change of settings
    silent_deposals: bool  # leaders may be deposed without notice: only the fence or their leader lease stops them
    copies: bool  # objects are copied and moved between hosts
    lonely: bool  # one node is down nearly all the time
    step_objects: int  # records that a node applies in one step: it can be stopped in the middle of a batch
    work_ms: int  # interval of a leader's periodic work
    groups: int  # number of groups; with few groups each is large
    changing: bool  # settings may change at every start of a node: lease terms, policy
    targeted_faults: frozenset[TargetedFault]
    drains: bool  # an operator drains storage hosts
    adopted: bool  # the pool was adopted from another master
    event_changes_max: int  # events that a leader keeps until they are durable
    event_messages_max: int  # messages from which a subscriber can resume
    store_keeps_expiry: bool  # a restarted store keeps the remaining time of leases (embedded), not the full TTL (etcd)

    @property
    def soft_pins_hold(self) -> bool:
        """Whether a soft-pinned object is never evicted during a run."""
        index = self.index
        held = not index.allow_evict_soft_pinned or index.eviction_policy == "expiry"
        return held and index.soft_pin_ttl_ms == PIN_MS and not self.changing


def plan_for(seed: int) -> Plan:
    """The plan of a seed. It has its own random generators, so that later draws do not change it."""
    chance = random.Random(f"plan-{seed}")
    disks = 4_000 <= seed < ADOPTED_FROM_SEED and random.Random(f"disks-{seed}").random() < 0.6
    # Not in older seeds: those that once found a bug must stay the same.
    quotas = seed >= 3_000 and random.Random(f"quotas-{seed}").random() < 0.5
    roomy = chance.random() < 0.5 and not quotas
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
        newest_level=random.Random(f"level-{seed}").random() < 0.85,
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
        tenant_quotas=quotas,
    )
    if disks:
        index = dataclasses.replace(index, **_disk_settings(random.Random(f"disk-settings-{seed}"), roomy))
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
        step_objects=random.Random(f"pieces-{seed}").choice((1, 4, 100)),
        store_keeps_expiry=chance.random() < 0.3,
        mixed=chance.random() < 0.2,
        silent_deposals=chance.random() < 0.25,
        copies=more.random() < 0.7,
        work_ms=random.Random(f"work-{seed}").choice((250, 250, 250, 50, 1_500, 6_000)),
        groups=random.Random(f"groups-{seed}").choice((2, 2, 2, 1)),
        changing=random.Random(f"changing-{seed}").random() < 0.15,
        targeted_faults=targeted_faults_for(seed),
        drains=seed >= 3_000 and random.Random(f"drains-{seed}").random() < 0.5,
        adopted=seed >= ADOPTED_FROM_SEED and random.Random(f"adopted-{seed}").random() < 0.6,
        event_changes_max=random.Random(f"changes-{seed}").choice((2, 5, 1_000)),
        event_messages_max=random.Random(f"messages-{seed}").choice((3, 30, 1_000)),
        lonely=more.random() < 0.1,
    )


def _disk_settings(chance: random.Random, roomy: bool) -> dict[str, Any]:
    return {
        "enable_offload": True,
        "offload_on_evict": chance.random() < 0.4,
        "offload_force_evict": chance.random() < 0.3,
        "promotion_on_hit": True,
        "promotion_threshold": chance.choice((1, 2)),
        "promotions_per_heartbeat": 1,
        "eviction_high_watermark": 1.0 if roomy else 0.4,
        "eviction_ratio": 0.2 if roomy else 0.3,
        "disk_grace_ms": chance.choice((3_000, 30_000)),
    }


def settings_of(plan: Plan, chance: random.Random, other: random.Random) -> tuple[HaSettings, IndexSettings]:
    """The settings of one run of one node."""
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
