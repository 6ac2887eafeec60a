"""How long the journal is: the explicit batches in the store, as this node has seen them written and deleted."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class JournalLength:
    """First record and size of every explicit batch in the store that this node knows of.

    A node that starts from a snapshot does not know the batches before it. Once it leads, it lists them and adds them
    with `add_older`.
    """

    __slots__ = ("_sizes", "batches_seen", "bytes", "bytes_seen")  # fmt: skip

    def __init__(self) -> None:
        self._sizes: deque[tuple[int, int]] = deque()  # (first record, bytes), the oldest first
        self.bytes = 0
        self.batches_seen = 0  # these two only grow: their difference shows how much was written in between
        self.bytes_seen = 0

    @property
    def batches(self) -> int:
        return len(self._sizes)

    @property
    def first_n(self) -> int:
        """The first record of the oldest known batch; 0 if none is known."""
        return self._sizes[0][0] if self._sizes else 0

    def add(self, first_n: int, size: int) -> None:
        """Count a batch that was written. A batch that is listed again is counted once."""
        if self._sizes and first_n <= self._sizes[-1][0]:
            return
        self._sizes.append((first_n, size))
        self.bytes += size
        self.batches_seen += 1
        self.bytes_seen += size

    def add_older(self, older: Iterable[tuple[int, int]]) -> None:
        """Add the batches before the oldest known one, the oldest first."""
        found = list(older)
        self._sizes.extendleft(reversed(found))
        self.bytes += sum(size for _, size in found)

    def remove_before(self, before_n: int) -> None:
        """Forget every batch that begins before this record: it was deleted from the store."""
        sizes = self._sizes
        while sizes and sizes[0][0] < before_n:
            self.bytes -= sizes.popleft()[1]

    def truncate(self, truncated_n: int) -> None:
        """Forget the batches that lie wholly below the truncation point.

        A batch stays until its successor begins at or below the record after that point.
        """
        sizes = self._sizes
        while len(sizes) > 1 and sizes[1][0] <= truncated_n + 1:
            self.bytes -= sizes.popleft()[1]

    def exceeds(self, batches: int, size: int) -> bool:
        return len(self._sizes) > batches or self.bytes > size
