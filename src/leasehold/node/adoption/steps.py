"""The steps of an adoption: cut the clients off, list, prove the old master dead, then write."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from msgspec import Struct

from leasehold.base.errors import CallerError
from leasehold.ha.keys import Keys, pack
from leasehold.ha.node_values import HistoryEntry
from leasehold.index.adoption import CHANGED, Plan, ReportedSegment, Terms, adopt
from leasehold.index.index import Index
from leasehold.index.settings import IndexSettings
from leasehold.mvcc.model import Put
from leasehold.node.adoption.old_master import CallCount, Listing, OldMaster, Progress, Witness
from leasehold.node.index_files import Imported, store_index
from leasehold.runtime.clock import BootClock, wall_us
from leasehold.wire.finder import parse_address
from leasehold.wire.messages import DEFAULT_TENANT
from leasehold.wire.tables import Release

QUIET_MS: Final = 2_500  # Mooncake's clients ping once a second
_LOOK_S: Final = 0.25
_TERM_S: Final = 5.0
_LEASE_MS: Final = 5_000  # of an old master without objects

Say = Callable[[str], None]


class NotAdoptable(CallerError):
    """The pool cannot be adopted now; the message states why, and what to do."""


class Order(Struct, frozen=True):
    """What to adopt, and what the operator vouches for."""

    rpc: str
    admin: str
    release: Release
    standbys: tuple[str, ...] = ()
    no_standbys: bool = False
    tenants: tuple[str, ...] = ()
    close: str = ""  # command that cuts the clients off
    stop: str = ""  # command that ends the old process
    pid: int = 0  # of the old process, if it runs here
    cut_over: bool = False  # end the old process: by `stop`, or by signals to `pid`
    assume_dead: bool = False
    unverified: bool = False
    put_release_ms: int = 600_000
    wait_s: float = 60.0


class Target(Struct, frozen=True):
    """Where the adopted index is stored."""

    coord: str
    cluster: str
    prefix: str
    data_dir: Path


class Survey(Struct):
    """One listing, what can be taken of it, and whether it can be trusted."""

    plan: Plan
    terms: Terms
    listed: int
    other_keys: int  # keys that the master counts and did not list: unfinished puts, other tenants
    took_ms: int
    calls_meanwhile: dict[str, int]  # by others
    overrides: list[str]


class Adoption:
    """One adoption. Nothing is written before `take` has proved the old process dead."""

    def __init__(self, order: Order, old: OldMaster, say: Say, progress: Progress) -> None:
        self._order, self._old, self._say, self._progress = order, old, say, progress
        self._clock = BootClock()
        self._overrides: list[str] = []

    async def dry_run(self) -> Survey:
        """List and plan. The clients may go on meanwhile: the count of a real adoption can differ."""
        await self._old.check()
        return await self._survey(await self._old.segments())

    async def take(self, target: Target) -> tuple[Survey, Imported]:
        """Adopt the pool into an empty cluster."""
        order, old = self._order, self._old
        await old.check()
        await self._check_standbys()
        witness = await old.open_witness()
        try:
            if order.close:
                self._say(f"cutting the clients off: {order.close}")
                await _run(order.close, "--close")
            await self._await_quiet()
            segments = await old.segments()
            survey = await self._survey(segments)
            self._check_survey(survey, segments, await old.segments())
            await self._await_death(witness)
        finally:
            witness.close()
        index = Index(IndexSettings(), lambda choices: 0)
        self._say(f"building the index of {len(survey.plan.objects)} objects")
        adopt(index, survey.plan, survey.terms)
        await self._check_still_dead()
        entry = Put(Keys(target.cluster, target.prefix).history + b"%020d-%06d" % (0, 0), pack(self._history(survey)))
        done = await store_index(index, target.coord, target.cluster, target.prefix, target.data_dir, (entry,))
        return survey, done

    # --- before the listing ---

    async def _check_standbys(self) -> None:
        order = self._order
        if order.standbys or order.no_standbys or not await self._old.has_standbys():
            return
        raise NotAdoptable(
            "the old master is the leader of several: a standby would take over when it dies, and hand out the same "
            "memory. Stop every standby and name it with --standby HOST:PORT (its RPC port), or write --no-standbys"
        )

    async def _await_quiet(self) -> None:
        """Wait until the count of calls stands still."""
        deadline_ms = self._clock.now_ms() + int(self._order.wait_s * 1_000)
        if self._order.unverified:
            self._override("listed without proof that no client reaches the old master (--unverified): gives up P3")
            return
        self._say("waiting until no client reaches the old master")
        before, since_ms = await self._old.count(), self._clock.now_ms()
        while self._clock.now_ms() < since_ms + QUIET_MS:
            await asyncio.sleep(_LOOK_S)
            now = await self._old.count()
            if (grown := now.since(before)) and self._clock.now_ms() > deadline_ms:
                raise NotAdoptable(
                    f"clients still reach the old master (calls meanwhile: {_counts(grown)}): close its RPC port to "
                    "everyone but this machine, or give the command for it with --close. `--unverified` adopts "
                    "nevertheless, and gives up that no byte is handed to two writers (P3)"
                )
            if grown:
                before, since_ms = now, self._clock.now_ms()

    # --- the listing ---

    async def _survey(self, segments: list[ReportedSegment]) -> Survey:
        order, old = self._order, self._old
        named = {tenant.encode() for tenant in order.tenants} | await old.tenants()
        tenants = (DEFAULT_TENANT, *sorted(named - {DEFAULT_TENANT}))
        before, own_before, began_ms = await old.count(), dict(old.own_calls), self._clock.now_ms()
        self._say(f"listing about {before.keys} objects")
        listing = await old.listing(tenants, self._progress)
        took_ms, after = self._clock.now_ms() - began_ms, await old.count()
        plan = Plan(segments, listing.objects)
        for key in listing.changed:
            plan.drop(key, CHANGED)
        terms = Terms(listing.lease_ms or _LEASE_MS, order.put_release_ms)
        listed = len(listing.objects) + len(listing.changed)
        others = _by_others(before, after, own_before, old.own_calls)
        return Survey(plan, terms, listed, max(0, after.keys - listed), took_ms, others, self._overrides)

    def _check_survey(self, survey: Survey, before: list[ReportedSegment], after: list[ReportedSegment]) -> None:
        """No client called, and no segment was dropped meanwhile."""
        problem = ""
        if survey.calls_meanwhile:
            problem = f"clients reached the old master during the listing ({_counts(survey.calls_meanwhile)})"
        elif {one.spec.id for one in before} != {one.spec.id for one in after}:
            problem = (
                f"the old master dropped segments during the listing, which took {survey.took_ms} ms: its client TTL "
                "(--client_ttl) has passed since the clients were cut off"
            )
        if not problem:
            return
        if not self._order.unverified:
            raise NotAdoptable(
                f"{problem}: let the clients reconnect, and try again. Nothing was changed. `--unverified` adopts "
                "nevertheless, and gives up that no byte is handed to two writers (P3)"
            )
        self._override(problem)

    # --- after the listing ---

    async def _await_death(self, witness: Witness) -> None:
        """Wait until the old process is proven dead: it must not wake up and hand out the same memory."""
        order = self._order
        if order.cut_over:
            await self._end_old()
        else:
            self._say("stop the old master now, and keep its supervisor from starting it again")
        wait_s = 0.0 if order.assume_dead else order.wait_s
        alive = await self._until_empty(lambda: self._why_alive(witness), wait_s)
        if not alive:
            self._say("the old master is dead")
            return
        if not order.assume_dead:
            raise NotAdoptable(
                f"the old master is not proven dead: {alive}. Nothing was changed. Stop it and adopt again; if it "
                "cannot come back, write --assume-dead (logged)"
            )
        self._override(f"the old master was assumed dead by the operator (--assume-dead): {alive}")

    async def _check_still_dead(self) -> None:
        """A supervisor may have started the old master again, with an empty index and the same clients."""
        if not self._order.assume_dead and (reason := await self._why_listening()):
            raise NotAdoptable(
                f"the old master was started again ({reason}). Nothing was changed. Keep its supervisor from starting "
                "it, and adopt again"
            )

    async def _end_old(self) -> None:
        order = self._order
        if order.stop:
            self._say(f"stopping the old master: {order.stop}")
            await _run(order.stop, "--stop")
            return
        self._say(f"stopping the old master: process {order.pid}")
        for number, wait_s in ((signal.SIGTERM, _TERM_S), (signal.SIGKILL, 0.0)):
            try:
                os.kill(order.pid, number)
            except ProcessLookupError:
                return
            except PermissionError:
                raise NotAdoptable(f"process {order.pid} belongs to another user: stop it with --stop") from None
            await self._until_empty(self._why_running, wait_s)

    async def _until_empty(self, why: Callable[[], Awaitable[str]], wait_s: float) -> str:
        """Wait until there is no reason any more, or the time has passed; returns the reason that is left."""
        deadline_ms = self._clock.now_ms() + int(wait_s * 1_000)
        while True:
            reason = await why()
            if not reason or self._clock.now_ms() >= deadline_ms:
                return reason
            await asyncio.sleep(_LOOK_S)

    async def _why_running(self) -> str:
        pid = self._order.pid
        return f"process {pid} runs" if pid and _runs(pid) else ""

    async def _why_alive(self, witness: Witness) -> str:
        """Empty if the process is dead: its connection ended, its ports refuse, and its number is unused."""
        if reason := await self._why_running():
            return reason
        if not await witness.ended(_LOOK_S):
            return f"a connection to {self._order.rpc} is still open (a stopped process keeps it, too)"
        return await self._why_listening()

    async def _why_listening(self) -> str:
        for address in (self._order.rpc, self._order.admin, *self._order.standbys):
            if reason := await _why_open(address):
                return reason
        return ""

    def _override(self, sentence: str) -> None:
        self._overrides.append(sentence)
        self._say(f"warning: {sentence}")

    def _history(self, survey: Survey) -> HistoryEntry:
        sentence = (
            f"adopted {len(survey.plan.objects)} of {survey.listed} objects from mooncake_master at {self._order.rpc}"
        )
        return HistoryEntry("adopt", 0, "adopt", "; ".join([sentence, *self._overrides]), wall_us(), {
            "objects": len(survey.plan.objects), "dropped": survey.plan.dropped.total(),
        })  # fmt: skip


def _by_others(
    before: CallCount, after: CallCount, own_before: dict[str, int], own_after: dict[str, int]
) -> dict[str, int]:
    """Calls between two counts that are not ours."""
    own = {name: count - own_before.get(name, 0) for name, count in own_after.items()}
    grown = {name: count - own.get(name, 0) for name, count in after.since(before).items()}
    return {name: count for name, count in grown.items() if count}


def _counts(calls: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(calls.items()))


async def _run(command: str, flag: str) -> None:
    process = await asyncio.create_subprocess_shell(
        command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    if process.returncode:
        text = output.decode(errors="replace").strip()
        raise NotAdoptable(f"the command of {flag} failed with exit code {process.returncode}: {text}")


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in "ZX"


async def _why_open(address: str) -> str:
    """Empty if nothing listens there: the connection is refused, not merely unanswered."""
    host, port = parse_address(address)
    try:
        async with asyncio.timeout(2.0):
            _, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return ""
    except (OSError, TimeoutError) as error:
        return f"{address} cannot be reached ({error or type(error).__name__}), which proves nothing"
    writer.close()
    return f"{address} accepts connections"


__all__ = ["Adoption", "Listing", "NotAdoptable", "Order", "Survey", "Target"]
