"""A forced promotion that drains the buffer into a state that the drained batch does not follow."""

from __future__ import annotations

import pytest

from leasehold.ha.context import Context, Identity
from leasehold.ha.effects import StoreRequest
from leasehold.ha.events import StoreAnswered
from leasehold.ha.promotion import Promotion
from leasehold.ha.settings import HaSettings
from leasehold.ha.steps import run_to_end
from leasehold.index.index import Index
from leasehold.index.records import Begin, Record, Remove
from leasehold.index.settings import IndexSettings
from leasehold.journal.batch import encode_explicit, encode_records
from leasehold.journal.chain import Position
from leasehold.mvcc.model import Header, TxnResult


def _batch(first_n: int, prev: tuple[int, int], record: Record) -> bytes:
    return encode_explicit(7, first_n, prev, 3_000, 0, [encode_records([record])])


@pytest.mark.parametrize(("moved_to", "outcome"), [(Position(0, 0), "gap"), (Position(5, 1), "fork")])
def test_14_a_forced_promotion_deletes_nothing_if_its_state_is_no_prefix_of_the_journal(
    moved_to: Position, outcome: str
) -> None:
    """No record is at fault, so the node must rebuild. Instead it deleted the drained batch and crashed."""
    ctx = Context(
        Identity("n1", "run", "c"), HaSettings(durability="buffered"), lambda: Index(IndexSettings(), lambda count: 0)
    )
    run_to_end(ctx.state.take_explicit(0, 1, _batch(1, (0, 0), Begin(0, 7, 10_000, 10_000)), leads=7))
    failures: list[str] = []
    promotion = Promotion(
        ctx, 9, 1, forced=True, ready=lambda *_: None, failed=lambda _, sentence: failures.append(sentence)
    )
    promotion._lease_ended(0)
    promotion.drained(0, (_batch(2, (7, 1), Remove(1, b"t", b"k", 0)),))
    *_, write = ctx.effects.take()
    assert isinstance(write, StoreRequest)
    ctx.state.applied = moved_to  # meanwhile
    steps = ctx.effects.answered(1, StoreAnswered(write.request, TxnResult(Header(5), True)))
    assert steps is not None
    run_to_end(steps)
    assert not [effect for effect in ctx.effects.take() if isinstance(effect, StoreRequest)]
    assert failures == [f"The journal does not continue from this state ({outcome})."]
