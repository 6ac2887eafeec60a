"""Which connections of a dead worker are forwarded: the rule of the checkpoints, with a kill at every step."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from leasehold.ha.connection_verdict import ConnectionVerdict, judge
from leasehold.wire.handoff import NEVER

SENT_WHOLE = 10_000


def test_only_a_connection_exactly_at_its_checkpoint_is_forwarded() -> None:
    assert judge(0, 0, gone=False) is ConnectionVerdict.FORWARD, "accepted, and nothing was read"
    assert judge(150, 150, gone=False) is ConnectionVerdict.FORWARD
    assert judge(150, 149, gone=False) is ConnectionVerdict.RESET, "the last byte of the answer was not written"
    assert judge(150, 151, gone=False) is ConnectionVerdict.RESET, "one byte of another request was read"
    assert judge(NEVER, 150, gone=False) is ConnectionVerdict.RESET
    assert judge(150, None, gone=False) is ConnectionVerdict.RESET, "without the kernel's count nothing is proven"


def test_a_closed_connection_is_dropped() -> None:
    assert judge(150, 150, gone=True) is ConnectionVerdict.DROP
    assert judge(NEVER, None, gone=True) is ConnectionVerdict.DROP


class World:
    """The kernel's count, the worker's checkpoint, and the truth that neither may contradict."""

    def __init__(self) -> None:
        self.checkpoint = self.passed = 0
        self.open = 0  # requests read and not wholly answered
        self.half = False  # part of a request was read
        self.unsent = 0


def life(world: World, steps: list[tuple[str, int]]) -> Iterator[None]:
    """A worker that serves one connection; it may be killed wherever this yields."""
    for step, size in steps:
        match step:
            case "read half":
                world.passed, world.half = world.passed + size, True
            case "read":
                world.passed, world.open, world.half = world.passed + size, world.open + 1, False
            case "answer" if world.open and not world.unsent:
                leaves_none = world.open == 1 and not world.half
                if leaves_none:
                    world.checkpoint = world.passed + size
                    yield
                sent = size if size < SENT_WHOLE else size // 2
                world.passed, world.unsent = world.passed + sent, size - sent
                world.open -= not world.unsent
                yield
                if world.unsent:
                    world.checkpoint = NEVER
            case "take the rest" if world.unsent:
                world.passed, world.unsent, world.open = world.passed + world.unsent, 0, world.open - 1
                yield
                if not world.open and not world.half:
                    world.checkpoint = world.passed
        yield


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["read half", "read", "answer", "take the rest"]),
        st.sampled_from([1, 2, 50, SENT_WHOLE // 2, SENT_WHOLE]),
    ),
    max_size=12,
)


@given(STEPS)
def test_wherever_it_is_killed_no_open_request_is_forwarded(steps: list[tuple[str, int]]) -> None:
    """Schedule 20a: a request that was read and not answered may have been executed."""
    world = World()
    for _ in life(world, steps):
        if judge(world.checkpoint, world.passed, gone=False) is ConnectionVerdict.FORWARD:
            assert (world.open, world.half, world.unsent) == (0, False, 0)


@given(STEPS)
def test_every_idle_connection_is_forwarded(steps: list[tuple[str, int]]) -> None:
    """Also if the worker was killed inside the call that wrote the answer."""
    world = World()
    for _ in life(world, [*steps, ("read", 3), *[("take the rest", 1), ("answer", 2)] * 15, ("take the rest", 1)]):
        pass
    assert not world.open
    assert judge(world.checkpoint, world.passed, gone=False) is ConnectionVerdict.FORWARD
