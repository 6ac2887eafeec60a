"""The linearizability checker, on histories whose verdict is known."""

from __future__ import annotations

import random

from leasehold.testing.checkers import Operation, by_key, check_register


def w(called: int, returned: int | None, value: int) -> Operation:
    return Operation(called, returned, "write", value)


def r(called: int, returned: int | None, value: int | None) -> Operation:
    return Operation(called, returned, "read", None, value)


def test_sequential() -> None:
    assert check_register([r(0, 1, None), w(2, 3, 1), r(4, 5, 1)])


def test_stale_read_is_found_and_named() -> None:
    verdict = check_register([w(0, 1, 1), w(2, 3, 2), r(4, 5, 1)])
    assert not verdict
    assert r(4, 5, 1) in verdict.stuck


def test_concurrent_read_may_see_either() -> None:
    assert check_register([w(0, 10, 1), r(1, 2, None)])
    assert check_register([w(0, 10, 1), r(1, 2, 1)])
    assert not check_register([w(0, 10, 1), r(1, 2, 1), r(3, 4, None)])


def test_unknown_write_may_happen_late_or_never() -> None:
    assert check_register([w(0, None, 1), r(5, 6, None), r(7, 8, 1), r(9, 10, 1)])
    assert check_register([w(0, None, 1), r(5, 6, None)])
    assert not check_register([w(0, None, 1), r(5, 6, None), r(7, 8, 1), r(9, 10, None)])


def test_compare_and_set() -> None:
    done = Operation(2, 3, "cas", (1, 2), True)
    refused = Operation(2, 3, "cas", (7, 2), False)
    assert check_register([w(0, 1, 1), done, r(4, 5, 2)])
    assert check_register([w(0, 1, 1), refused, r(4, 5, 1)])
    assert not check_register([w(0, 1, 1), refused, r(4, 5, 2)])
    assert not check_register([w(0, 1, 7), refused])


def test_a_refused_compare_and_set_may_have_seen_a_value_that_no_client_read() -> None:
    assert check_register([w(0, 1, 1), w(2, None, 2), Operation(3, 4, "cas", (1, 3), False)])


def test_histories_made_from_a_real_order_always_pass() -> None:
    """Operations that did happen at one moment each, with random slack around it."""
    for seed in range(50):
        chance = random.Random(seed)
        value: int | None = None
        history = []
        for number in range(60):
            moment = number * 10
            span = moment - chance.randrange(60), moment + chance.randrange(60)
            if chance.random() < 0.4:
                value = number
                history.append(w(*span, number))
            else:
                history.append(r(*span, value))
        assert check_register(history), seed


def test_parts_by_key() -> None:
    parts = by_key([("a", r(5, 6, None)), ("b", r(1, 2, None)), ("a", w(0, 1, 1))])
    assert [operation.called for operation in parts["a"]] == [0, 5]
