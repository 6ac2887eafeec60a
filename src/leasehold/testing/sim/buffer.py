"""The buffer of a simulated world: a Redis that survives every node, sealed by a successor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.ha.effects import DrainBuffer, ForgetBuffer, PushBuffer
from leasehold.ha.events import BufferDrained, BufferFailed, BufferPushed

if TYPE_CHECKING:
    from leasehold.testing.sim.nodes import Run
    from leasehold.testing.sim.world import World


class SimBuffer:
    """Finished batches by epoch. A push to a sealed epoch fails."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._kept: dict[int, list[tuple[int, bytes]]] = {}
        self._sealed_before = 0
        self.up = True

    def take(self, run: Run, effect: PushBuffer | ForgetBuffer | DrainBuffer) -> None:
        self._world.clock.after_ms(self._world.clock.random.uniform(0.1, 2), self._execute, run, effect)

    def holds_to(self, epoch: int) -> int:
        """The last record of an epoch in this buffer: it survives its writer."""
        kept = self._kept.get(epoch)
        return kept[-1][0] if kept else 0

    def _execute(self, run: Run, effect: PushBuffer | ForgetBuffer | DrainBuffer) -> None:
        if not self.up:
            if not isinstance(effect, ForgetBuffer):
                run.deliver(BufferFailed("it does not answer"))
        elif isinstance(effect, PushBuffer):
            if effect.epoch < self._sealed_before:
                run.deliver(BufferFailed("this epoch is sealed"))
                return
            self._kept.setdefault(effect.epoch, []).append((effect.last_n, effect.batch))
            run.deliver(BufferPushed(effect.last_n))
        elif isinstance(effect, ForgetBuffer):
            kept = self._kept.get(effect.epoch, [])
            self._kept[effect.epoch] = [one for one in kept if one[0] > effect.last_n]
        else:
            self._sealed_before = max(self._sealed_before, effect.before_epoch)
            batches = tuple(
                batch for epoch in sorted(self._kept) if epoch < effect.before_epoch for _, batch in self._kept[epoch]
            )
            run.deliver(BufferDrained(batches))
