"""Check a recorded history: linearizability of every key, leases, space and bytes. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from leasehold.testing.chaos.history import Call, Extent, HostLoss, operations
from leasehold.testing.checkers import Operation, check_register

PUT_RELEASE_MS = 600_000  # the master's default `put_release`
PAGE = 4096


class Verdict(Struct, frozen=True):
    """The result of all checks: every violation in a sentence, and how much was checked."""

    calls: int
    keys: int
    lost: tuple[str, ...]
    stale: tuple[str, ...]
    leases: tuple[str, ...]
    space: tuple[str, ...]
    wrong_bytes: tuple[str, ...]
    unproven: tuple[str, ...]  # keys whose search was given up
    leases_checked: int
    extents_checked: int

    @property
    def violations(self) -> tuple[str, ...]:
        return self.lost + self.stale + self.leases + self.space + self.wrong_bytes

    @property
    def clean(self) -> bool:
        return not self.violations


def losses(calls: Iterable[Call], lost: Sequence[HostLoss]) -> list[Call]:
    """A `lose` for every version that was on a storage host when it was killed."""
    return [
        Call("storage host", call.key, "lose", loss.killed_ns, loss.killed_ns, "unknown", call.version)
        for call in calls
        if call.what in ("put", "upsert")
        for loss in lost
        if 0 < call.placed_ns <= loss.back_ns and any(each.endpoint == loss.endpoint for each in call.extents)
    ]


def judge(calls: Sequence[Call], lost: Sequence[HostLoss], stable: Callable[[str], bool]) -> Verdict:
    """Check everything. `stable`: whether the storage host at an endpoint was never killed."""
    registers = operations([*calls, *losses(calls, lost)])
    missing: list[str] = []
    stale: list[str] = []
    unproven: list[str] = []
    for key, history in registers.items():
        verdict = check_register(history)
        if not verdict.proven:
            unproven.append(key)
        elif not verdict:
            is_miss = any(each.what == "read" and each.result is None for each in verdict.stuck)
            (missing if is_miss else stale).append(f"'{key}': {_sentence(verdict.stuck)}")
    space = _Space(calls, stable)
    return Verdict(
        len(calls),
        len(registers),
        tuple(missing),
        tuple(stale),
        (*_removed_under_lease(calls), *(call.problem for call in calls if call.problem.startswith("P2"))),
        tuple(space.violations()),
        tuple(call.problem for call in calls if call.problem and not call.problem.startswith("P2")),
        tuple(unproven),
        space.leases,
        space.handouts,
    )


def _sentence(stuck: Sequence[Operation]) -> str:
    """The calls that no order explains."""
    return "; ".join(
        f"{each.process} {each.what} {each.argument if each.what != 'read' else each.result} "
        f"[{each.called}, {'?' if each.returned is None else each.returned}]"
        for each in stuck[:6]
    )


def _removed_under_lease(calls: Sequence[Call]) -> Iterator[str]:
    """Removes without force that succeeded although a lease on that very version was certainly live."""
    by_key: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        by_key[call.key].append(call)
    for removed in calls:
        if (
            removed.what != "remove"
            or removed.forced
            or removed.outcome != "ok"
            or removed.client.startswith("mooncake")
        ):
            continue
        for lease in by_key[removed.key]:
            if not lease.lease_ms or lease.outcome != "ok" or not _is_live(lease, removed):
                continue
            if not any(_may_replace(other, lease, removed) for other in by_key[removed.key]):
                yield (
                    f"P2: {removed.client} removed '{removed.key}' ({lease.version}) without force, "
                    f"{lease.client} held a lease on it"
                )


def _is_live(lease: Call, during: Call) -> bool:
    end_ns = lease.called_ns + lease.lease_ms * 1_000_000
    return lease.returned_ns < during.called_ns and during.returned_ns < end_ns


def _may_replace(write: Call, since: Call, until: Call) -> bool:
    """Whether a write may have stored another version between the two calls: that one is not under the lease."""
    if write.what not in ("put", "upsert") or write.outcome == "refused" or write.called_ns > until.returned_ns:
        return False
    return write.outcome == "unknown" or write.returned_ns > since.called_ns


class _Space:
    """Extents that were handed out, against leases on them and against puts that were never ended."""

    def __init__(self, calls: Sequence[Call], stable: Callable[[str], bool]) -> None:
        self._pages: dict[tuple[str, int], list[tuple[Extent, Call]]] = defaultdict(list)
        self._handouts = [
            (extent, call) for call in calls if call.placed_ns for extent in call.extents if stable(extent.endpoint)
        ]
        self.handouts = len(self._handouts)
        self.leases = 0
        for call in calls:
            unfinished = call.placed_ns and call.outcome == "refused"  # of an unknown one the end may be durable
            leased = call.lease_ms and call.outcome == "ok"
            if unfinished or leased:
                self.leases += bool(leased)
                for extent in call.extents:
                    for page in _pages(extent):
                        self._pages[page].append((extent, call))

    def violations(self) -> Iterator[str]:
        seen: set[tuple[int, int]] = set()
        for extent, given in self._handouts:
            for page in _pages(extent):
                for other, protecting in self._pages[page]:
                    pair = (id(given), id(protecting))
                    if pair not in seen and extent.overlaps(other) and _certainly_protected(protecting, given):
                        seen.add(pair)
                        how = "under a lease" if protecting.lease_ms else "of an unfinished put"
                        yield (
                            f"P3: {given.client} got {extent.endpoint} {extent.address:#x} for '{given.key}', "
                            f"space {how} of {protecting.client} ('{protecting.key}')"
                        )


def _certainly_protected(protecting: Call, given: Call) -> bool:
    """Whether space was given out surely after it was protected, and surely before that protection ended."""
    if protecting is given or (protecting.client, protecting.key) == (given.client, given.key):
        return False  # a client that starts its own put again may get the same space
    since_ns = protecting.placed_ns or protecting.returned_ns
    term_ms = protecting.lease_ms or PUT_RELEASE_MS
    return since_ns < given.called_ns and given.placed_ns < protecting.called_ns + term_ms * 1_000_000


def _pages(extent: Extent) -> Iterator[tuple[str, int]]:
    for page in range(extent.address // PAGE, (extent.address + extent.size - 1) // PAGE + 1):
        yield extent.endpoint, page
