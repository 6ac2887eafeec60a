"""Group commit: records that are decided while one batch is in flight go into the next. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from leasehold.base import limits
from leasehold.base.invariants import ensure
from leasehold.index.records import Record
from leasehold.journal.batch import Piece, encode_explicit, encode_records
from leasehold.journal.chain import Position
from leasehold.journal.fenced_writer import Fate, FencedWriter, slot_key
from leasehold.journal.length import JournalLength
from leasehold.mvcc.model import Txn, TxnResult

_FRAME_BYTES = 512  # room for the batch's own fields
_PIECE_RECORDS = 256  # encoded together
_PIECE_BYTES = 64 * 1024


class Committer:
    """Writes one epoch's explicit batches to the journal, in order. Two calls are enough:

        txn = committer.commit(now_ms, wall_us, records)    # send this to the store
        fate = committer.answered(result)                   # `durable` has moved if the fate is WRITTEN

    No delay is added: while no batch is in flight, pending records are sent. Law: `durable` moves only when the store
    has confirmed that the batch is in its slot under the fence of this epoch.
    """

    __slots__ = (
        "_explicit",
        "_finished",
        "_last",
        "_lease_ms",
        "_length",
        "_pending",
        "durable",
        "idle",
        "pending",
        "version",
        "writer",
    )

    def __init__(
        self,
        explicit_prefix: bytes,
        writer: FencedWriter,
        tail: Position,
        lease_ms: int,
        version: int,
        length: JournalLength | None = None,
    ) -> None:
        self._explicit = explicit_prefix
        self.writer = writer
        self.durable = tail
        self.version = version
        self._lease_ms = lease_ms  # the leader lease that each write gives
        self._length = JournalLength() if length is None else length  # counts the batches in the store
        self._pending: deque[Piece] = deque()
        self.pending = 0  # records that are in no finished batch yet
        self._last = tail  # the last record of a finished (packed) batch, durable or not
        self._finished: deque[tuple[int, int, bytes]] = deque()  # (first_n, last_n, value): packed, not yet decided
        self.idle = True  # every record that was offered is durable

    def commit(self, now_ms: int, wall_us: int, records: Sequence[Record] = ()) -> Txn:
        """Add records and return the transaction of the oldest batch that is not durable.

        Call it only while no other transaction is in flight. A batch whose outcome is unknown is repeated.
        """
        self.offer(records)
        if not self._finished:
            self.finish(wall_us)
        return self.send(now_ms)

    def use_version(self, version: int) -> None:
        """Pack the following batches in this format version."""
        self.version = version

    def pack(self, wall_us: int) -> tuple[int, bytes, bool]:
        """The oldest batch that is not durable: its last record, its bytes, and whether it was packed just now."""
        if self._finished:
            _, last_n, value = self._finished[0]
            return last_n, value, False
        return *self.finish(wall_us), True

    def offer(self, records: Sequence[Record]) -> None:
        """Add records, which follow everything offered before, to the pending ones."""
        if not records:
            return
        self.idle = False
        self.pending += len(records)
        for at in range(0, len(records), _PIECE_RECORDS):
            some = records[at : at + _PIECE_RECORDS]
            piece = encode_records(some)
            if len(piece[1]) <= _PIECE_BYTES:
                self._pending.append(piece)
            else:  # long names: one by one, so that they fill batches
                self._pending.extend(encode_records([record]) for record in some)

    def finish(self, wall_us: int) -> tuple[int, bytes]:
        """Pack one batch of pending records: (last n, bytes). Its bytes never change after this."""
        chosen: list[Piece] = []
        room = limits.journal_batch_bytes_max - _FRAME_BYTES
        pending = self._pending
        left = limits.journal_batch_records_max
        while pending and pending[0][0] <= left and len(pending[0][1]) <= room:
            piece = pending.popleft()
            left -= piece[0]
            room -= len(piece[1])
            chosen.append(piece)
        ensure(chosen, "P6 a record fits a batch", len(pending[0][1]) if pending else 0)
        count = limits.journal_batch_records_max - left
        self.pending -= count
        epoch = self.writer.epoch
        first_n = self._last.n + 1
        prev = (self._last.epoch, self._last.n)
        value = encode_explicit(epoch, first_n, prev, self._lease_ms, wall_us, chosen, self.version)
        self._last = Position(epoch, self._last.n + count)
        self._finished.append((first_n, self._last.n, value))
        return self._last.n, value

    def send(self, now_ms: int) -> Txn:
        """The oldest finished batch; the same bytes again if its outcome is unknown."""
        if self.writer.undecided:
            return self.writer.again(now_ms)
        first_n, _, value = self._finished[0]
        return self.writer.write(now_ms, slot_key(self._explicit, first_n), value)

    def answered(self, result: TxnResult) -> Fate:
        """Take the store's answer about the batch in flight."""
        fate = self.writer.judge(result)
        if fate is Fate.WRITTEN:
            first_n, last_n, value = self._finished.popleft()
            self.durable = Position(self.writer.epoch, last_n)
            self._length.add(first_n, len(value))
            self.idle = not self._pending and not self._finished
        return fate
