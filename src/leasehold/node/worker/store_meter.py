"""How long the store takes, and how many writes this node sends it: for metrics and charts."""

from __future__ import annotations

from collections import Counter

from leasehold.base.measures import Histogram, Measure
from leasehold.ha.effects import StoreRequest
from leasehold.ha.events import StoreAnswered
from leasehold.ha.keys import Keys
from leasehold.mvcc.model import Put, Range, Txn


class StoreMeter:
    """Measures the requests of one node's machine. `begin` and `end` are called for each, `end` after its answer."""

    def __init__(self, keys: Keys) -> None:
        self._explicit = keys.explicit
        self._unlogged = keys.unlogged
        self._commits: dict[int, int] = {}  # requests in flight that commit a batch, and when they were sent
        self.commit_ns = Histogram()
        self.commit_bytes = Histogram(shift=6)
        self.writes: Counter[str] = Counter()  # by kind
        self.failures: Counter[str] = Counter()

    def begin(self, effect: StoreRequest, now_ns: int) -> None:
        """The request is sent."""
        if isinstance(effect.op, Range):
            return
        put = effect.op.success[0] if isinstance(effect.op, Txn) and effect.op.success else effect.op
        if isinstance(put, Put) and put.key.startswith(self._explicit):
            self._commits[effect.request] = now_ns
            self.commit_bytes.add(len(put.value))
            self.writes["commit"] += 1
        elif isinstance(put, Put) and put.key.startswith(self._unlogged):
            self.writes["renewals"] += 1
        else:
            self.writes["other"] += 1

    def end(self, answer: StoreAnswered, now_ns: int) -> None:
        """The request was answered, or its answer did not arrive in time."""
        began_ns = self._commits.pop(answer.request, None)
        if answer.failure is not None:
            self.failures[answer.failure.value] += 1
        if began_ns is not None:
            self.commit_ns.add(now_ns - began_ns)

    def measures(self) -> list[Measure]:
        """For the metrics port."""
        return [
            Measure(
                "leasehold_commit_seconds",
                "time from sending a journal batch to the store to its answer",
                "seconds",
                {(): self.commit_ns},
            ),
            Measure("leasehold_commit_bytes", "size of the journal batches sent", "bytes", {(): self.commit_bytes}),
            Measure(
                "leasehold_store_writes",
                "writes sent to the store: journal batches, unlogged batches of renewals, and others",
                "counter",
                {(kind,): self.writes[kind] for kind in ("commit", "renewals", "other")},
                ("kind",),
            ),
            Measure(
                "leasehold_store_failures",
                "requests to the store that failed, by outcome",
                "counter",
                {(outcome,): count for outcome, count in self.failures.items()},
                ("outcome",),
            ),
        ]
