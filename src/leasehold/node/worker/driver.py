"""The shell around `ha.machine.NodeMachine`: it carries effects out on a coordination store and comes back with events.

Nothing is decided here. An effect never answers from inside its own execution: every event enters through the loop, or
(answers of a store in memory) after all earlier effects. So the machine is never entered twice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import structlog

from leasehold.base.clock import Clock
from leasehold.base.errors import LeaseholdError, Unavailable, UnknownOutcome
from leasehold.coord.api import Abandonable, Coord, Immediate, KeepAlive, Sends
from leasehold.ha.effects import (
    ChangeRole,
    CloseWatch,
    DrainBuffer,
    DropLease,
    ForgetBuffer,
    GrantLease,
    KeepLease,
    NodeEffect,
    OpenWatch,
    PushBuffer,
    ReadSnapshot,
    Say,
    SendAnswers,
    StoreRequest,
    WriteSnapshot,
)
from leasehold.ha.events import (
    Decided,
    Failure,
    LeaseLost,
    NodeEvent,
    StoreAnswered,
    StoreResult,
    Ticked,
    WatchBroken,
    WatchDelivered,
)
from leasehold.ha.machine import NodeMachine
from leasehold.mvcc.errors import StoreError
from leasehold.node.worker.store_meter import StoreMeter
from leasehold.runtime.clock import boot_ns, wall_us
from leasehold.runtime.tasks import TaskSet
from leasehold.wire.answers import Waiting

log = structlog.get_logger("leasehold.node")


class Keeper(Protocol):
    """Keeps bytes for the machine outside the store: snapshot files and the buffer."""

    def push(self, effect: PushBuffer) -> None: ...

    def forget(self, effect: ForgetBuffer) -> None: ...

    def drain(self, effect: DrainBuffer) -> None: ...

    def read_snapshot(self, effect: ReadSnapshot) -> None: ...

    def write_snapshot(self, effect: WriteSnapshot) -> None: ...


class Driver:
    """Runs one machine on one loop. `on_role` is called at every change of role, before any other effect."""

    def __init__(
        self,
        machine: NodeMachine,
        coord: Coord,
        clock: Clock,
        *,
        keeper: Keeper,
        on_role: Callable[[ChangeRole], None],
        on_answers: Callable[[list[Waiting]], None],
        on_fatal: Callable[[BaseException], None],
        after_turn: Callable[[], None] | None = None,
    ) -> None:
        """`after_turn` is called when the effects of an event were carried out."""
        self.machine = machine
        self._coord = coord
        self._clock = clock
        self._keeper = keeper
        self.meter = StoreMeter(machine.ctx.keys)
        self._on_role = on_role
        self._on_answers = on_answers
        self._on_fatal = on_fatal
        self._after_turn = after_turn
        self._loop = asyncio.get_running_loop()
        self._tasks = TaskSet(self._failed)
        self._watches: dict[int, asyncio.Task[None]] = {}
        self._kept: dict[int, KeepAlive] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = -1
        self._deciding = False
        self._immediately = coord.immediately if isinstance(coord, Immediate) else None
        self._sends = coord if isinstance(coord, Sends) else None
        self._sent: dict[int, Abandonable] = {}  # requests without a task that are not answered yet
        self._answers: deque[StoreAnswered] = deque()  # the store's answers to requests of the present turn
        self._idle = asyncio.Event()  # clear while the machine has work left from earlier events
        self._idle.set()
        self._closed = False
        machine.serving.report_to(self.decided)

    # --- events --------------------------------------------------------------------------------------------------

    def tell(self, event: NodeEvent) -> None:
        """Pass one event to the machine and carry out its effects."""
        if self._closed:
            return
        try:
            machine = self.machine
            now_us = wall_us()
            for effect in machine.handle(self._clock.now_ms(), event, now_us):
                self._do(effect)
            while self._answers:
                for effect in machine.handle(self._clock.now_ms(), self._answers.popleft(), now_us):
                    self._do(effect)
            if self._after_turn is not None:
                self._after_turn()
            self._arm()
            if machine.busy:
                self._idle.clear()
            elif not self._idle.is_set():
                self._idle.set()
        except BaseException as error:
            # A machine that raised may be in an inconsistent state: this process must not go on with it.
            self._failed(error)
            raise

    def decided(self) -> None:
        """Commands have decided records: send the machine one event, after the present burst of requests."""
        if not self._deciding:
            self._deciding = True
            self._loop.call_soon(self._commit_decided)

    def _commit_decided(self) -> None:
        self._deciding = False
        self.tell(Decided())

    def _arm(self) -> None:
        wake_ms = self.machine.wake_at_ms
        if wake_ms == self._timer_ms and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = wake_ms
        delay_ms = max(0, wake_ms - self._clock.now_ms())
        self._timer = self._loop.call_later(delay_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.tell(Ticked())

    # --- effects -------------------------------------------------------------------------------------------------

    def _do(self, effect: NodeEffect) -> None:
        match effect:
            case StoreRequest():
                self._request(effect)
            case SendAnswers(answers):
                self._on_answers(answers)
            case Say(sentence, serious):
                (log.error if serious else log.info)(sentence)
            case ChangeRole():
                log.info(effect.sentence, role=effect.role.value)
                self._on_role(effect)
            case OpenWatch():
                self._watches[effect.watch] = self._tasks.start(self._watch(effect))
            case CloseWatch(watch):
                if (task := self._watches.pop(watch, None)) is not None:
                    task.cancel()
            case GrantLease():
                self._tasks.start(self._grant(effect))
            case KeepLease():
                self._keep(effect)
            case DropLease():
                self._drop(effect)
            case PushBuffer():
                self._keeper.push(effect)
            case ForgetBuffer():
                self._keeper.forget(effect)
            case DrainBuffer():
                self._keeper.drain(effect)
            case ReadSnapshot():
                self._keeper.read_snapshot(effect)
            case WriteSnapshot():
                self._keeper.write_snapshot(effect)

    def _failed(self, error: BaseException) -> None:
        if not self._closed:
            self._closed = True
            self._on_fatal(error)

    def _request(self, effect: StoreRequest) -> None:
        """Send a request to the store; without a task if the store can, because a task costs more than the rest."""
        self.meter.begin(effect, boot_ns())
        if self._sends is not None and self._send(self._sends, effect):
            return
        answer = None
        if self._immediately is not None:
            try:
                result = self._immediately(effect.op)
                answer = None if result is None else StoreAnswered(effect.request, result=result)
            except LeaseholdError as error:
                answer = _failed_answer(effect.request, error)
        if answer is None:
            self._tasks.start(self._ask(effect))
        else:
            self.meter.end(answer, boot_ns())
            self._answers.append(answer)

    def _send(self, store: Sends, effect: StoreRequest) -> bool:
        """Send a request without a task. Returns False if the store cannot."""
        request, timeout_s = effect.request, effect.timeout_ms / 1000
        end_s = self._loop.time() + timeout_s

        def answered(result: StoreResult) -> None:
            del self._sent[request]
            answer = StoreAnswered(request, result=result)
            self.meter.end(answer, boot_ns())
            self.tell(answer)

        def unfinished(rest: Coroutine[Any, Any, StoreResult]) -> None:
            del self._sent[request]
            if self._closed:
                rest.close()
            else:
                self._tasks.start(self._await(request, rest, max(0, round((end_s - self._loop.time()) * 1000))))

        sent = store.send(effect.op, timeout_s, answered, unfinished)
        if sent is not None:
            self._sent[request] = sent
        return sent is not None

    async def _await(self, request: int, call: Coroutine[Any, Any, StoreResult], timeout_ms: int) -> None:
        answer = await _answer(request, call, timeout_ms)
        self.meter.end(answer, boot_ns())
        self.tell(answer)

    async def _ask(self, effect: StoreRequest) -> None:
        await self._await(effect.request, self._coord.do(effect.op, effect.timeout_ms / 1000), effect.timeout_ms)

    async def _grant(self, effect: GrantLease) -> None:
        call = self._coord.lease_grant(effect.ttl_s, timeout_s=effect.timeout_ms / 1000)
        self.tell(await _answer(effect.request, call, effect.timeout_ms))

    def _keep(self, effect: KeepLease) -> None:
        kept = self._coord.keep_alive(effect.lease, effect.ttl_s, effect.granted_sent_ms)
        self._kept[effect.lease] = kept

        def check() -> None:
            if kept.lost and self._kept.pop(effect.lease, None) is not None:
                kept.close()
                self.tell(LeaseLost(effect.lease))

        kept.on_change(lambda: self._call_from_anywhere(check))

    def _call_from_anywhere(self, callback: Callable[[], None]) -> None:
        if not self._closed and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback)

    def _drop(self, effect: DropLease) -> None:
        if (kept := self._kept.pop(effect.lease, None)) is not None:
            kept.close()
        if effect.revoke:
            self._tasks.start(self._revoke(effect.lease))

    async def _revoke(self, lease: int) -> None:
        try:
            await self._coord.lease_revoke(lease)
        except LeaseholdError as error:
            log.info("a lease could not be revoked: it expires", error=str(error))

    async def _watch(self, effect: OpenWatch) -> None:
        try:
            stream = self._coord.watch(effect.key, effect.range_end, start_revision=effect.start_revision)
            async with stream:
                async for batch in stream:
                    self.tell(WatchDelivered(effect.watch, batch))
                    await self._idle.wait()  # a slow reader: later batches wait in the watch, which is bounded
            reason = "the stream ended"
        except LeaseholdError as error:
            reason = str(error)
        if self._watches.pop(effect.watch, None) is not None:
            self.tell(WatchBroken(effect.watch, reason))

    async def close(self) -> None:
        """Stop everything under way. Requests that were sent may still take effect."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for kept in self._kept.values():
            kept.close()
        for sent in self._sent.values():
            sent.abandon()
        self._sent.clear()
        await self._tasks.close()


async def _answer(request: int, call: Coroutine[Any, Any, StoreResult], timeout_ms: int) -> StoreAnswered:
    """The result of one request as an event. The shell's own time limit is a little longer than the client's."""
    try:
        async with asyncio.timeout(timeout_ms / 1000 + 0.5):
            return StoreAnswered(request, result=await call)
    except (LeaseholdError, TimeoutError) as error:
        return _failed_answer(request, error)


def _failed_answer(request: int, error: LeaseholdError | TimeoutError) -> StoreAnswered:
    match error:
        case StoreError():
            return StoreAnswered(request, failure=Failure.REFUSED, error=error)
        case Unavailable():
            return StoreAnswered(request, failure=Failure.UNAVAILABLE)
        case UnknownOutcome() | TimeoutError():
            return StoreAnswered(request, failure=Failure.UNKNOWN)
    log.warning("the store gave an unexpected answer", error=str(error))
    return StoreAnswered(request, failure=Failure.UNKNOWN)
