"""An oracle that knows nothing of the index: which bytes may still be read or written, and until when.

Bytes are named by endpoint and address, times are true time. Space that is handed out must not touch a byte that is
protected: that is P2 and P3, seen from outside.
"""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.index import Object
from leasehold.index.model import Replica


@dataclass(slots=True)
class Claim:
    low: int
    high: int
    until: int
    why: str
    reader: bool


class Ledger:
    """Promises to readers (leases) and dangers from writers, by endpoint."""

    def __init__(self) -> None:
        self.claims: dict[str, list[Claim]] = {}
        self.writers: dict[tuple[int, int], list[Claim]] = {}

    def _add(self, replica: Replica, size: int, until: int, why: str, reader: bool) -> Claim:
        claim = Claim(replica.address, replica.address + size, until, why, reader)
        self.claims.setdefault(replica.segment.spec.endpoint, []).append(claim)
        return claim

    def handed_out(self, now: int, replicas: tuple[Replica, ...], size: int, who: str, gives_up_at: int) -> list[Claim]:
        """A writer got these places: there may be no claim on them. From now on the writer has one."""
        for replica in replicas:
            claims = self.claims.get(replica.segment.spec.endpoint, [])
            claims[:] = [claim for claim in claims if claim.until > now]
            for claim in claims:
                overlaps = claim.low < replica.address + size and replica.address < claim.high
                assert not overlaps, f"{who} at {now} got bytes that {claim.why} has until {claim.until}"
        return [self._add(replica, size, gives_up_at, f"writer {who}", False) for replica in replicas]

    def leased(self, entry: Object, until: int) -> None:
        """A reader may read these places until then."""
        for replica in entry.replicas:
            why = f"a reader of {entry.key!r} (put {entry.put_seq})"
            claims = self.claims.get(replica.segment.spec.endpoint, [])
            for claim in claims:
                if claim.why == why and claim.low == replica.address:
                    claim.until = max(claim.until, until)
                    break
            else:
                self._add(replica, entry.size, until, why, True)

    def owner_took_back(self, endpoint: str) -> None:
        """The memory's owner withdrew it: leases on it are void, writers may still be at work."""
        self.claims[endpoint] = [claim for claim in self.claims.get(endpoint, []) if not claim.reader]
