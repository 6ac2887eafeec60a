"""The outbox between machine and wire: never absent, never early."""

from __future__ import annotations

from leasehold.base.codes import Code
from leasehold.ha.machine import Identity, NodeMachine
from leasehold.ha.settings import HaSettings
from leasehold.index.index import Index
from leasehold.index.replies import SpaceHandedOut, View
from leasehold.index.settings import IndexSettings
from leasehold.wire.answers import AlwaysServes, Waiting
from leasehold.wire.server import Server


class EmptyPermit(AlwaysServes):
    """A permit with a length of zero."""

    def __len__(self) -> int:
        return 0


async def test_a_server_never_takes_an_idle_permit_for_none() -> None:
    """It once did, and served without one: puts were acknowledged before they were durable."""
    permit = EmptyPermit()
    server = Server(permit)
    assert server.permit is permit
    server.close()


def test_a_follower_holds_every_answer_until_its_deadline() -> None:
    identity = Identity(name="n", run="r", cluster="c")
    settings = HaSettings(call_deadline_ms=20_000)
    machine = NodeMachine(identity, settings, lambda: Index(IndexSettings(), lambda choices: 0))
    serving, outbox = machine.serving, machine.outbox
    assert outbox, "an idle outbox is an outbox"
    assert not serving.may_serve(1_000)
    view = serving.answer(View(None, 1), b"view")
    space = serving.answer(SpaceHandedOut(Code.OK, None, 2), b"space")
    assert isinstance(view, Waiting)
    assert isinstance(space, Waiting)
    assert (outbox.release(1_000), outbox.waiting) == ([], 2)
    assert outbox.overdue(20_999) == []
    assert (outbox.overdue(22_000), outbox.waiting, outbox.unknown_count) == ([view, space], 0, 2)
