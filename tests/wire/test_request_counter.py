"""The counts of open requests that a forwarder keeps from frames alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leasehold.wire.frame import PUSH, request, response
from leasehold.wire.request_counter import Tally


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    """`data` in pieces of these sizes, and the rest."""
    pieces, at = [], 0
    for size in sizes:
        pieces.append(data[at : at + size])
        at += size
    return [*pieces, data[at:]]


PAYLOADS = st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=9)), max_size=5)
SIZES = st.lists(st.integers(0, 30), max_size=12)


@given(PAYLOADS, SIZES, SIZES, st.integers(0, 400))
def test_nothing_is_open_exactly_when_every_request_and_its_answer_are_through(
    payloads: list[tuple[bytes, bytes]], request_sizes: list[int], answered_sizes: list[int], lost: int
) -> None:
    requests = b"".join(request(seq, 7, body, extra) for seq, (body, extra) in enumerate(payloads))
    answers = b"".join(response(seq, body, attachment=extra) for seq, (body, extra) in enumerate(payloads))
    tally = Tally()
    for piece in cut(requests, request_sizes):
        tally.asked(piece)
    assert tally.nothing_open == (not payloads)
    kept = answers[: max(0, len(answers) - lost)]
    for piece in cut(kept, answered_sizes):
        tally.answered(piece)
    assert tally.nothing_open == (kept == answers)
    assert tally.passed_bytes == len(requests) + len(kept)


def test_of_what_is_not_our_framing_nothing_is_known() -> None:
    tally = Tally()
    tally.asked(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    tally.answered(b"HTTP/1.1 200 OK\r\n\r\n")
    assert not tally.nothing_open


def test_a_connection_with_a_push_is_never_moved_to_another_server() -> None:
    """Its client has a subscription there, which another server would not know."""
    tally = Tally()
    tally.asked(request(1, 7, b"subscribe"))
    tally.answered(response(1, b"done") + response(9, b"news", kind=PUSH))
    tally.asked(request(2, 7, b"more"))
    tally.answered(response(2, b"done"))
    assert not tally.nothing_open
