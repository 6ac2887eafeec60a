"""Every planted bug, and the search that must catch it: `make proof` runs them all and writes docs/proof.md.

    python -m tests.planted                  prints the table
    python -m tests.planted --write          writes it into docs/proof.md too
    python -m tests.planted no-grace         searches for some only

A bug is caught if a seed breaks a promise with it, and the same seed keeps all promises without it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct
from tests.model import test_model as model
from tests.pool import test_capability as capability

from leasehold.testing.cachesim.mutants import MUTANTS
from leasehold.testing.cachesim.run import run_seed as run_cache_seed
from leasehold.testing.sim import run_seed
from leasehold.testing.sim.plan import BUGS

PAGE = Path(__file__).parents[1] / "docs" / "proof.md"
EVENTS = 5_000
SEEDS_MAX = 400  # for one bug
ALL_STATES = "all states"
NOT_CAUGHT = "**not caught**"

# name -> effect, by the first seed whose worlds have what the bug concerns
SIMULATED: dict[int, dict[str, str]] = {
    0: {
        "no-fence": "journal writes are not fenced",
        "early-put-end": "`put_end` is acknowledged before its record is durable",
        "early-space": "`put_start` is answered before its record is durable",
        "no-grace": "`begin` forgets the grace",
        "no-wait": "a successor does not wait for the old leader lease to expire",
        "no-lease": "a primary ignores its leader lease",
        "early-miss": "a miss does not wait for the removal that it shows",
        "no-quarantine": "space of a removed object is free immediately, without quarantine",
        "no-skip": "a removal by pattern takes leased objects",
        "early-copy": "readers are sent to a copy before it is complete",
        "forget-pin": "a successor forgets pins",
        "trust-owners": "the leader does not wait for owners after a restart of the whole cluster "
        "([H9](schedules.md#h9))",
        "early-event": "an event is published before its record is durable",
        "silent-overflow": "dropped events are not followed by a reload",
        "resume-any-epoch": "a new leader lets every subscriber continue",
        "page-wins": "a page overwrites later events",
        "late-page": "a subscriber takes a late answer for the page that it requested",
        "early-page": "a page shows objects that are not published yet, and does not wait for dropped events",
    },
    3_000: {
        "early-drain": "a drain job is acknowledged before its record is durable",
        "snapshot-without-drains": "snapshots lack the drain jobs",
        "drain-ends-early": "a drain job succeeds although objects are left",
        "drained-is-placeable": "a draining host takes new objects",
        "early-quota": "a quota is acknowledged before its record is durable",
        "snapshot-without-quotas": "snapshots lack the quotas",
        "quota-never-released": "space that leaves its object stays charged",
        "quota-after-the-put": "a put itself does not count",
        "quota-evicts-leased": "leased objects are evicted for a quota",
    },
    4_000: {
        "notice-of-any-version": "a notice about a file counts for the present version of its key",
        "notice-creates": "a notice about an unknown file creates an object",
        "sent-to-the-silent": "readers are sent to disks whose owner is silent",
        "memory-takes-all": "an object that leaves memory leaves the disks too",
        "early-promotion": "space for a version on disk is handed out before its record is durable",
        "promotion-again": "a promotion that failed may be repeated immediately",
        "snapshot-without-disks": "snapshots lack the versions on disk",
        "forgets-nothing-removed": "removed objects stay on disk",
    },
    100_000: {
        "adopt-before-the-cut": "objects are listed while clients of the old master still reach it",
        "old-master-wakes": "the old master is only stopped, and goes on handing out memory",
        "unlisted-not-quarantined": "space without an adopted object is free immediately",
        "bind-by-endpoint": "a restarted storage host gets the objects of the one before",
        "adopt-own-grace": "adopted objects get the new master's lease term only",
    },
}
CAPABILITIES = {
    "any-window": "a capability never expires",
    "last-window-only": "a capability expires with the next ping",
    "windows-without-epochs": "windows of different leaders are compared by their numbers alone",
    "counted-when-sent": "a window counts from when its ping was sent, not from its answer",
    "epochs-go-back": "a capability of an older leader is accepted",
    "any-range": "the range of a capability is not checked",
    "any-right": "a read capability allows writes",
    "any-mount": "a capability for memory mounted before is accepted",
    "unsigned": "the signature is not checked",
    "old-secret-forgotten-immediately": "a rotated secret is not accepted for a while",
    "old-secret-kept-forever": "a rotated secret is accepted forever",
}


class Catch(Struct, frozen=True):
    """The result of a search."""

    promise: str
    searched: str  # the number of seeds


class Planted(Struct, frozen=True):
    """A bug, and the search for it."""

    instrument: str
    name: str
    effect: str
    search: Callable[[int], Catch | None]  # its argument: the largest number of seeds


def planted_bugs() -> Iterator[Planted]:
    for first, bugs in SIMULATED.items():
        for name, effect in bugs.items():
            yield Planted(f"simulator, from seed {first:,}", name, effect, partial(simulated, name, first))
    for rule in MUTANTS:
        name = rule.replace(" ", "-")
        yield Planted("cache simulator", name, f"this rule is switched off: {rule}", partial(cached, rule))
    for name, effect in CAPABILITIES.items():
        yield Planted("capabilities", name, effect, partial(forged, name))
    for bug, (rule, _) in model.BUGS.items():
        yield Planted("model", bug.lower().replace("_", "-"), rule, partial(modelled, bug))


def simulated(bug: str, first: int, seeds_max: int) -> Catch | None:
    for count in range(seeds_max):
        found = run_seed(first + count, events=EVENTS, bugs=frozenset([bug]))
        if not found.ok and run_seed(first + count, events=EVENTS).ok:
            return Catch(found.broken, f"{count + 1:,}")
    return None


def cached(rule: str, seeds_max: int) -> Catch | None:
    for seed in range(seeds_max):
        if not run_cache_seed(seed, MUTANTS[rule]) and run_cache_seed(seed):
            return Catch("linearizable", f"{seed + 1:,}")
    return None


def forged(bug: str, seeds_max: int) -> Catch | None:
    for seed in range(seeds_max):
        try:
            capability.run(seed, capability.PLANTED[bug])
        except capability.Broken:
            capability.run(seed, capability.shipped)
            return Catch("access", f"{seed + 1:,}")
    return None


def modelled(bug: str, _seeds_max: int) -> Catch | None:
    with tempfile.TemporaryDirectory() as folder:
        return Catch(model.BUGS[bug][1], ALL_STATES) if model.search(Path(folder), bug).errors else None


def undescribed() -> set[str]:
    """Bugs that can be planted, but are in no table here."""
    described = {name for bugs in SIMULATED.values() for name in bugs}
    return (set(BUGS) ^ described) | (set(capability.PLANTED) ^ set(CAPABILITIES))


def verdict(caught: int, total: int) -> str:
    return f"{caught} of {total} planted bugs caught"


def row(bug: Planted, catch: Catch | None, seeds_max: int) -> str:
    promise, searched = (catch.promise, catch.searched) if catch is not None else (NOT_CAUGHT, f"{seeds_max:,}")
    return f"| `{bug.name}` | {bug.effect} | {bug.instrument} | {promise} | {searched} |"


def section(rows: Sequence[str], line: str) -> str:
    """The part of docs/proof.md about the last run."""
    head = ("| planted bug | effect | searched by | found as | seeds |", "|---|---|---|---|---|")
    return "\n".join(("<!-- planted -->", "", f"**{line}**", "", *head, *rows, "", "<!-- /planted -->"))


def _searched(bug: Planted, seeds_max: int) -> tuple[Planted, Catch | None]:
    return bug, bug.search(seeds_max)


def main() -> int:
    parser = argparse.ArgumentParser(description="Search for every planted bug.")
    parser.add_argument("names", nargs="*", help="bugs to search for (default: all)")
    parser.add_argument("--write", action="store_true", help="write the table into docs/proof.md")
    parser.add_argument("--jobs", type=int, default=2, help="number of parallel processes")
    parser.add_argument("--seeds-max", type=int, default=SEEDS_MAX, help="largest number of seeds for one bug")
    options = parser.parse_args()
    missing = undescribed()
    if missing:
        parser.error(f"describe these bugs in tests/planted.py, or remove them there: {', '.join(sorted(missing))}")
    bugs = [bug for bug in planted_bugs() if not options.names or bug.name in options.names]
    rows: list[str] = []
    caught = 0
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for bug, catch in pool.imap(partial(_searched, seeds_max=options.seeds_max), bugs):
            rows.append(row(bug, catch, options.seeds_max))
            caught += catch is not None
            print(rows[-1], flush=True)
    line = verdict(caught, len(bugs))
    print(line)
    if options.write and not options.names:
        written = section(rows, line)
        page = re.sub(r"<!-- planted -->.*<!-- /planted -->", lambda _: written, PAGE.read_text(), flags=re.DOTALL)
        PAGE.write_text(page)
    return 0 if caught == len(bugs) else 1


if __name__ == "__main__":
    sys.exit(main())
