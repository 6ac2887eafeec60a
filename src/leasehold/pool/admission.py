"""Which requests may touch the memory of a storage host.

With a cluster secret, every request needs a capability of the master, and the fencing token of a write is the one in
it. Without a secret, the number that a writer names is trusted as long as the master can have given it out: if a
higher one stands in the way of a writer, the host queries the master for the highest that it has given out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable

import structlog

from leasehold.base.clock import Clock
from leasehold.pool.capability import Refusal, Right, Verifier
from leasehold.pool.fence import WriteFence
from leasehold.pool.frame import Operation, Status
from leasehold.runtime.clock import BootClock

log = structlog.get_logger()

AskIssued = Callable[[], Awaitable[int | None]]  # the highest token that the master has given out; None: unknown
_RIGHTS = {Operation.READ: Right.READ, Operation.WRITE: Right.WRITE}


async def _unknown() -> int | None:
    return None


class Admission:
    """The fence, the verifier if there is a secret, and the counts of refusals."""

    def __init__(self, verifier: Verifier | None = None, clock: Clock | None = None) -> None:
        self.fence = WriteFence()
        self.verifier = verifier
        self._clock = clock or BootClock()
        self._ask: AskIssued = _unknown
        self._issued = 0
        self._withheld = False
        self.forged_numbers = 0  # writes under a number that the master had not given out
        self.refused: Counter[tuple[Operation, Status]] = Counter()

    def withhold(self) -> None:
        """Refuse all requests until `lend`, for a host whose address may have belonged to an earlier process.

        Until the new memory is mounted, the master takes it for the old one. A put that was acknowledged meanwhile
        would be lost by the mount, which ends everything in the old memory.
        """
        self._withheld = True

    def lend(self) -> None:
        """The memory is mounted: serve requests."""
        self._withheld = False

    def ask_with(self, ask: AskIssued) -> None:
        """How to learn the highest token that the master has given out."""
        self._ask = ask

    def learned(self, issued: int) -> None:
        """The master has given out no higher token."""
        self._issued = issued

    def refuse(self, operation: Operation, status: Status) -> None:
        """Count a refused request."""
        self.refused[operation, status] += 1

    def counts(self) -> dict[str, int]:
        """Refusals by reason, for the master's status."""
        counts: Counter[str] = Counter()
        for (_, status), count in self.refused.items():
            counts[status.name] += count
        if self.forged_numbers:
            counts["FORGED_NUMBER"] = self.forged_numbers
        return dict(counts)

    def judge(self, operation: Operation, address: int, length: int, number: int, capability: bytes) -> int | Status:
        """The fencing token of the request, or why it is refused."""
        if self._withheld:
            return Status.NOT_MOUNTED
        if self.verifier is None:
            return number
        given = self.verifier.judge(self._clock.now_ms(), _RIGHTS[operation], address, length, capability)
        return Status(given) if isinstance(given, Refusal) else given.token

    def may_read(self, offset: int, length: int, token: int) -> bool:
        """Whether the space still belongs to the object that the reader was sent to."""
        return self.verifier is None or self.fence.admits(offset, length, token)

    async def may_write(self, offset: int, length: int, token: int) -> bool:
        """Whether no later owner has written there."""
        if self.fence.admits(offset, length, token):
            return True
        if self.verifier is not None or self.fence.highest(offset, length) <= self._issued:
            return False
        issued = await self._ask()
        if issued is None:
            return False
        self._issued = issued
        forged = self.fence.forget_above(offset, length, issued)
        if forged:
            self.forged_numbers += forged
            log.warning("writes under numbers that the master had not given out were forgotten", count=forged)
        return self.fence.admits(offset, length, token)
