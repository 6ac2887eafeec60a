"""Group commit: what is decided while one batch is in flight goes into the next. Pure."""

from __future__ import annotations

from collections import deque

from leasehold.base import limits
from leasehold.base.invariants import ensure
from leasehold.index.records import Record
from leasehold.journal.batch import Piece, encode_explicit, encode_records
from leasehold.journal.chain import Position
from leasehold.journal.fenced_writer import Fate, FencedWriter, slot_key
from leasehold.mvcc.model import Txn, TxnResult

_FRAME_BYTES = 512  # room for the batch's own fields
_PIECE_RECORDS = 256  # are encoded in one go
_PIECE_BYTES = 64 * 1024


class Committer:
    """One epoch's explicit batches, in order. No delay is added: while nothing is in flight, what is there is sent.

    Law: `durable` moves only when the store has said that the batch stands in its slot under our fence.
    """

    __slots__ = (
        "_explicit",
        "_finished",
        "_last",
        "_pending",
        "_right_ms",
        "durable",
        "pending",
        "version",
        "writer",
        "written",
    )

    def __init__(
        self, explicit_prefix: bytes, writer: FencedWriter, tail: Position, right_ms: int, version: int
    ) -> None:
        self._explicit = explicit_prefix
        self.writer = writer
        self.durable = tail
        self.version = version
        self._right_ms = right_ms
        self._pending: deque[Piece] = deque()
        self.pending = 0  # records that no finished batch holds yet
        self._last = tail  # the last record that was finished (packed), durable or not
        self._finished: deque[tuple[int, int, bytes]] = deque()  # (first_n, last_n, value): packed, not yet decided
        self.written = (0, 0, b"")  # the last one that became durable

    @property
    def idle(self) -> bool:
        """Everything that was decided is durable."""
        return not self._pending and not self._finished

    @property
    def undecided(self) -> tuple[int, bytes] | None:
        """The batch in flight: its last number and bytes."""
        return (self._finished[0][1], self._finished[0][2]) if self._finished else None

    def offer(self, records: list[Record]) -> None:
        """Records that follow everything offered before."""
        self.pending += len(records)
        for at in range(0, len(records), _PIECE_RECORDS):
            some = records[at : at + _PIECE_RECORDS]
            piece = encode_records(some)
            if len(piece[1]) <= _PIECE_BYTES:
                self._pending.append(piece)
            else:  # long names: one by one, so that they fill batches
                self._pending.extend(encode_records([record]) for record in some)

    def finish(self, wall_us: int) -> tuple[int, bytes]:
        """Pack one batch out of what is pending: (last n, bytes). From here on its bytes never change."""
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
        value = encode_explicit(epoch, first_n, prev, self._right_ms, wall_us, chosen, self.version)
        self._last = Position(epoch, self._last.n + count)
        self._finished.append((first_n, self._last.n, value))
        return self._last.n, value

    def send(self, now_ms: int) -> Txn:
        """The oldest finished batch; again, byte for byte, if nobody knows what became of it."""
        if self.writer.undecided:
            return self.writer.again(now_ms)
        first_n, _, value = self._finished[0]
        return self.writer.write(now_ms, slot_key(self._explicit, first_n), value)

    def answered(self, result: TxnResult) -> Fate:
        """Take the store's answer about the batch in flight."""
        fate = self.writer.judge(result)
        if fate is Fate.WRITTEN:
            self.written = self._finished.popleft()
            _, last_n, _ = self.written
            self.durable = Position(self.writer.epoch, last_n)
        return fate
