"""A single push is read without the reader of streams; anything else is not taken for one."""

from __future__ import annotations

import pytest

from leasehold.wire.frame import PUSH, Response, ResponseReader, lone_push, response


def test_a_lone_push_is_what_the_reader_would_have_found() -> None:
    frame = response(7, b"news", kind=PUSH)
    assert lone_push(frame) == (7, b"news")
    assert ResponseReader(1_000).feed(frame) == [Response(7, 0, PUSH, b"news", b"")]
    assert lone_push(response(7, b"", kind=PUSH)) == (7, b"")


@pytest.mark.parametrize(
    "data",
    [
        response(7, b"an answer"),
        response(7, b"two", kind=PUSH) + response(7, b"pushes", kind=PUSH),
        response(7, b"with more", kind=PUSH, attachment=b"bytes"),
        response(7, b"cut off", kind=PUSH)[:-1],
        response(7, b"", kind=PUSH)[:-1],
        b"\x16" + response(7, b"another protocol", kind=PUSH)[1:],
        b"",
    ],
)
def test_what_is_not_one_whole_push_is_left_to_the_reader(data: bytes) -> None:
    assert lone_push(data) is None


def test_a_reader_that_keeps_the_beginning_of_a_response_is_not_between_two() -> None:
    reader, frame = ResponseReader(1_000), response(7, b"news", kind=PUSH)
    assert reader.between
    reader.feed(frame[:-1])
    assert not reader.between
    reader.feed(frame[-1:])
    assert reader.between
