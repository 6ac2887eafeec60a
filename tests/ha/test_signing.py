"""Signed leader values and registrations: what counts, and what becomes of forged ones."""

from __future__ import annotations

import random

import msgspec
import pytest

from leasehold.base.cluster_secret import parse_secrets
from leasehold.base.errors import SettingError
from leasehold.ha.keys import Keys, LeaderValue, pack
from leasehold.ha.node_values import NodeValue
from leasehold.ha.signing import Signer, Trust
from leasehold.ha.view import View
from leasehold.mvcc.model import Event, EventType, KeyValue, Put
from leasehold.testing.sim import run
from leasehold.testing.sim.plan import plan_for
from leasehold.testing.sim.world import World

KEYS = Keys("c")
OLD, NEW = b"o" * 32, b"n" * 32
LEADER = LeaderValue("a", "run", "a:1", "a:2", "a:3")
NODE = NodeValue(name="a", run="run", role="primary", admin="a:3")


def signer(*secrets: bytes) -> Signer:
    return Signer(lambda: secrets)


def test_a_signature_binds_key_value_and_lease() -> None:
    here = signer(OLD)
    value = here.signed(LEADER, KEYS.leader, 7)
    assert here.judge(pack(value), KEYS.leader, 7) is Trust.SIGNED
    assert here.judge(pack(value), KEYS.leader, 8) is Trust.FORGED, "replayed under another lease"
    assert here.judge(pack(value), Keys("other").leader, 7) is Trust.FORGED, "replayed in another cluster"
    for changed in ({"door": "evil:1"}, {"name": "b"}, {"run": "other"}, {"signature": "0" * 64}):
        assert here.judge(pack(msgspec.structs.replace(value, **changed)), KEYS.leader, 7) is Trust.FORGED
    assert signer(NEW).judge(pack(value), KEYS.leader, 7) is Trust.FORGED
    assert signer(NEW, OLD).judge(pack(value), KEYS.leader, 7) is Trust.SIGNED, "during a rotation"
    assert here.judge(pack(here.signed(NODE, KEYS.node("a"), 7)), KEYS.node("b"), 7) is Trust.FORGED


def test_a_field_of_a_newer_release_is_part_of_the_signature() -> None:
    class Newer(LeaderValue, frozen=True, omit_defaults=True):
        invented: tuple[int, ...] = ()

    here = signer(OLD)
    fields = {name: getattr(LEADER, name) for name in LEADER.__struct_fields__}
    raw = pack(here.signed(Newer(**fields, invented=(1, 2)), KEYS.leader, 7))
    assert here.judge(raw, KEYS.leader, 7) is Trust.SIGNED
    assert here.judge(raw.replace(b"[1,2]", b"[1,3]"), KEYS.leader, 7) is Trust.FORGED


def test_without_a_secret_values_are_written_as_before() -> None:
    """Nodes of older releases read and write the same bytes."""
    assert pack(signer().signed(LEADER, KEYS.leader, 7)) == pack(LEADER)
    assert b"signature" not in pack(NODE)
    assert signer().judge(pack(LEADER), KEYS.leader, 7) is Trust.UNSIGNED


@pytest.mark.parametrize("text", ["", "# only a comment", "short-secret", "x" * 40 + "\nshort-secret"])
def test_a_malformed_secret_file_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(SettingError, match="cluster_secret_file = 'f'") as refused:
        parse_secrets(text, "f")
    assert "short-secret" not in str(refused.value)


def kv(key: bytes, value: LeaderValue | NodeValue, revision: int, lease: int = 7) -> KeyValue:
    return KeyValue(key, pack(value), create_revision=1, mod_revision=revision, version=1, lease=lease)


def test_unsigned_values_count_until_every_node_signs() -> None:
    here = signer(OLD)
    view = View(KEYS, here)
    old_node = NodeValue(name="b", run="r2", role="standby")
    signed = here.signed(NODE, KEYS.node("a"), 7)
    view.replace(0, 1, [kv(KEYS.leader, LEADER, 1), kv(KEYS.node("a"), signed, 1), kv(KEYS.node("b"), old_node, 1)])
    assert view.leader is not None
    assert view.leader.trusted, "a leader of an older release"
    assert set(view.nodes) == {"a", "b"}

    def put(key: bytes, value: LeaderValue | NodeValue, revision: int, lease: int = 7) -> None:
        view.change(0, Event(EventType.PUT, kv(key, value, revision, lease)))

    put(KEYS.node("b"), here.signed(old_node, KEYS.node("b"), 7), 2)
    assert not here.all_sign, "the leader value is still unsigned"
    put(KEYS.leader, here.signed(LEADER, KEYS.leader, 7), 3)
    assert here.all_sign
    put(KEYS.leader, LeaderValue("evil", "r", door="evil:1"), 4)
    assert not view.leader.trusted, "never again"
    put(KEYS.node("c"), NodeValue(name="c", run="r3", role="standby", admin="evil:1"), 5)
    assert (set(view.nodes), view.rejected) == ({"a", "b"}, {"c"})


def test_a_leader_value_without_a_lease_or_without_sense_is_forged() -> None:
    view = View(KEYS, signer())
    view.replace(0, 1, [kv(KEYS.leader, LEADER, 1, lease=0)])
    assert view.leader is not None
    assert not view.leader.trusted
    view.replace(0, 2, [KeyValue(KEYS.leader, b"garbage", 1, 2, 1, 7)])
    assert view.leader is not None
    assert not view.leader.trusted


@pytest.mark.parametrize("seed", range(12))
def test_a_simulated_cluster_survives_forged_leader_keys(seed: int) -> None:
    """Beside all other faults; in the end one node leads and all agree."""
    world = World(seed, plan_for(seed), frozenset())
    chance = random.Random(f"forge-{seed}")

    def forge() -> None:
        if not world.quiet:
            if world.store.up and world.leader() is not None:
                forged = LeaderValue(chance.choice(sorted(world.nodes_by_name)), "forged", door="evil:1")
                world.store.store.execute(Put(world.keys.leader, pack(forged)))
            world.clock.after_ms(chance.randrange(1_000, 8_000), forge)

    world.clock.after_ms(2_000, forge)
    run._chaos(world, 3_000)
    run._converge(world)
