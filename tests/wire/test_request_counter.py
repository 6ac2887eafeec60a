"""Counting requests and answers from the ends of frames alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leasehold.wire.frame import PUSH, request, response
from leasehold.wire.request_counter import RequestCounter


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
    payloads: list[tuple[bytes, bytes]], request_sizes: list[int], answer_sizes: list[int], lost: int
) -> None:
    requests = b"".join(request(seq, 7, body, extra) for seq, (body, extra) in enumerate(payloads))
    answers = b"".join(response(seq, body, attachment=extra) for seq, (body, extra) in enumerate(payloads))
    counter = RequestCounter()
    for piece in cut(requests, request_sizes):
        counter.add_requests(piece)
    assert counter.nothing_open == (not payloads)
    kept = answers[: max(0, len(answers) - lost)]
    for piece in cut(kept, answer_sizes):
        counter.add_answers(piece)
    assert counter.nothing_open == (kept == answers)
    assert counter.passed_bytes == len(requests) + len(kept)


def test_of_what_is_not_our_framing_nothing_is_known() -> None:
    counter = RequestCounter()
    counter.add_requests(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    counter.add_answers(b"HTTP/1.1 200 OK\r\n\r\n")
    assert not counter.nothing_open


def test_a_connection_with_pushes_cannot_be_moved() -> None:
    """A client has subscribed there: another server would not know the subscription."""
    counter = RequestCounter()
    counter.add_requests(request(1, 7, b"subscribe"))
    counter.add_answers(response(1, b"done") + response(9, b"news", kind=PUSH))
    counter.add_requests(request(2, 7, b"more"))
    counter.add_answers(response(2, b"done"))
    assert not counter.nothing_open
