"""The wire's gate over a node's machine: may we answer, and is what the answer shows durable?"""

from __future__ import annotations

from collections.abc import Callable

from leasehold.base.clock import Clock
from leasehold.ha.answer_gate import AnswerGate, Verdict
from leasehold.ha.machine import NodeMachine

Then = Callable[[], None]


class NodeGate:
    """Implements `wire.gate.Gate`. Answers wait in the order of the records that they show."""

    def __init__(self, machine: NodeMachine, clock: Clock, call_deadline_ms: int) -> None:
        self._machine = machine
        self._clock = clock
        self._answers: AnswerGate[tuple[Then, Then | None]] = AnswerGate(call_deadline_ms)
        self.unknown_count = 0
        self.now_ms = 0

    @property
    def held(self) -> int:
        """Answers that wait. (Not `__len__`: an idle gate must never count as no gate.)"""
        return len(self._answers)

    @property
    def durable_n(self) -> int:
        return self._machine.durable_n

    @property
    def acked_n(self) -> int:
        return self._machine.acked_n

    def may_serve(self) -> bool:
        clock_ms = self._clock.now_ms()
        self.now_ms = self._machine.leader_ms(clock_ms)
        return self._machine.may_serve(clock_ms)

    def when_durable(self, n: int, then: Then, otherwise: Then | None = None, *, space: bool = False) -> None:
        """`then` once record `n` may be told and we may serve; `otherwise` when that was not known in time."""
        self._answers.hold(self._clock.now_ms(), n, (then, otherwise), hands_out_space=space)

    def progress(self) -> None:
        """Something may have become durable: let go what was waiting for it."""
        if len(self._answers):
            for (then, _), _verdict in self._answers.release(self._clock.now_ms(), self._machine):
                then()

    def overdue(self) -> None:
        """About once a second: callers that have waited too long are told that the outcome is not known."""
        self._give_up(self._answers.overdue(self._clock.now_ms()))

    def drop_all(self) -> None:
        """This node has stepped down: nothing held may leave as an answer any more."""
        self._give_up(self._answers.drop_all())

    def _give_up(self, entries: list[tuple[tuple[Then, Then | None], Verdict]]) -> None:
        for (_, otherwise), _verdict in entries:
            self.unknown_count += 1
            if otherwise is not None:
                otherwise()
