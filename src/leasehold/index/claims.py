"""Who has which place: a record that hands out space takes it here, from whoever was believed to have it (P3)."""

from __future__ import annotations

from leasehold.index.allocator import rounded
from leasehold.index.model import Owner, Quarantined, Segment
from leasehold.index.objects import Objects
from leasehold.index.state import Unappliable


class Claims(Objects):
    """Where two claim a byte the newer record wins."""

    def _claim(self, segment: Segment, offset: int, owner: Owner, n: int) -> bool:
        """Take a place for record `n`. What is there is displaced, unless it is newer: then the claim is void."""
        space = segment.space
        taken_bytes = space.take(offset, owner)
        if taken_bytes:
            self.used_bytes += taken_bytes
            return True
        if not space.contains(offset, owner.size):
            raise Unappliable(f"record {n} claims space outside of segment {segment.spec.name!r}")
        blocking = space.in_the_way(offset, owner.size)
        if blocking:
            if any(self._claimed_n(space.owners[start], segment, start) > n for start in blocking):
                return False
            for start in blocking:
                self._displace(segment, start, n)
        space.claim(offset, owner)
        self.used_bytes += rounded(owner.size)
        return True

    @staticmethod
    def _claimed_n(owner: Owner, segment: Segment, start: int) -> int:
        if isinstance(owner, Quarantined):
            return owner.n
        for replica in owner.replicas:
            if replica.offset == start and replica.segment is segment:
                return replica.claimed_n
        return owner.put_seq

    def _displace_older(self, segment: Segment, offset: int, size: int, n: int) -> None:
        """Record `n` gave this place away, whatever has become of it since."""
        space = segment.space
        for start in space.in_the_way(offset, size) if space.contains(offset, size) else ():
            if start in space.owners and self._claimed_n(space.owners[start], segment, start) < n:
                self._displace(segment, start, n)

    def _displace(self, segment: Segment, start: int, n: int) -> None:
        """Somebody newer has this place: whatever we still believed to be there is not."""
        owner = segment.space.owners[start]
        self._release(segment, start)
        if isinstance(owner, Quarantined):
            self._count_resting(owner, -1)
            return
        self.displaced_count += 1
        self._lose_replica(owner, segment, start, n)
