"""How long the journal is: its explicit batches, as this node has seen them come and go."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class Ledger:
    """First number and size of every explicit batch that stands in the store and that this node knows of.

    What stood there before this node's base (a snapshot) is added by `survey`, once this node leads.
    """

    __slots__ = ("_sizes", "batches_seen", "bytes", "bytes_seen")  # fmt: skip

    def __init__(self) -> None:
        self._sizes: deque[tuple[int, int]] = deque()  # (first n, bytes), the oldest first
        self.bytes = 0
        self.batches_seen = 0  # these two only grow: how much has been written since some moment
        self.bytes_seen = 0

    @property
    def batches(self) -> int:
        return len(self._sizes)

    @property
    def first_n(self) -> int:
        """The first record of the oldest known batch; 0 if none is known."""
        return self._sizes[0][0] if self._sizes else 0

    def saw(self, first_n: int, size: int) -> None:
        """A batch was written. One that is listed again is known."""
        if self._sizes and first_n <= self._sizes[-1][0]:
            return
        self._sizes.append((first_n, size))
        self.bytes += size
        self.batches_seen += 1
        self.bytes_seen += size

    def survey(self, older: Iterable[tuple[int, int]]) -> None:
        """Batches before the oldest known one, the oldest first."""
        found = list(older)
        self._sizes.extendleft(reversed(found))
        self.bytes += sum(size for _, size in found)

    def gone(self, before_n: int) -> None:
        """Every batch that begins before this record has left the store."""
        sizes = self._sizes
        while sizes and sizes[0][0] < before_n:
            self.bytes -= sizes.popleft()[1]

    def trimmed(self, truncated_n: int) -> None:
        """Only what is wholly below the floor may be gone: a batch stays until its successor begins at or below it."""
        sizes = self._sizes
        while len(sizes) > 1 and sizes[1][0] <= truncated_n + 1:
            self.bytes -= sizes.popleft()[1]

    def exceeds(self, batches: int, size: int) -> bool:
        return len(self._sizes) > batches or self.bytes > size
