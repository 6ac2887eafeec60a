"""A client of an unknown, newer release is named in the log, not only refused."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from leasehold.ha.outbox import Outbox
from leasehold.ha.serving import Serving
from leasehold.index import Index, IndexSettings
from leasehold.node.service.functions import MasterService
from leasehold.wire.body import pack, unpack
from leasehold.wire.channel import open_channel
from leasehold.wire.errors import RpcRefused
from leasehold.wire.frame import Err, function_id
from leasehold.wire.schema import BYTES, U64, Tuple
from leasehold.wire.server import Server, listen
from leasehold.wire.tables import V0_3_11, V0_3_12, V0_3_13
from leasehold.wire.tables.release import SERVICE

EXIST = V0_3_13.functions["ExistKey"]
NEWER_BODY = pack(Tuple((BYTES, BYTES, U64)), (b"k", b"default", 7))
WAIT_MS = 10_000


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    permit = Serving(Index(IndexSettings(), lambda _: 0), Outbox.always_open())
    server = Server(permit)
    service = MasterService(permit, V0_3_13)
    listener = server.serve(listen("127.0.0.1", 0), {}, V0_3_13)
    listener.set_handlers(service.handlers(), lambda release: MasterService(permit, release).handlers())
    yield server
    server.close()


async def refused(server: Server, function: int, body: bytes) -> int:
    channel = await open_channel(*server.listeners[0].address, timeout_ms=WAIT_MS)
    with pytest.raises(RpcRefused) as caught:
        await channel.raw_call(function, body, timeout_ms=WAIT_MS)
    channel.close()
    return caught.value.err


@pytest.mark.parametrize(
    ("function", "body", "err"),
    [
        (EXIST.id, NEWER_BODY, Err.INVALID_ARGUMENT),
        (function_id(SERVICE + "ExistKeyInTheYear2030"), b"", Err.NOT_REGISTERED),
    ],
    ids=["arguments", "function"],
)
async def test_it_is_named_once_with_what_to_do(server: Server, function: int, body: bytes, err: Err) -> None:
    with capture_logs() as logs:
        for _ in range(3):
            assert await refused(server, function, body) == err
    named = [line for line in logs if "not known here: upgrade Leasehold" in line["event"]]
    assert len(named) == 1
    assert named[0]["known_releases"] == "0.3.11, 0.3.12, 0.3.13"
    assert server.listeners[0].mismatches == {("127.0.0.1", "a release without a table here"): 3}


async def test_a_known_release_is_named(server: Server) -> None:
    old = V0_3_12.functions["PutEnd"]
    assert old.request is not None
    body = pack(old.request, (b"c" * 16, b"k", 4, b"default"))
    assert await refused(server, old.id, body) == Err.INVALID_ARGUMENT
    assert server.listeners[0].mismatches == {("127.0.0.1", "0.3.12"): 1}


async def test_a_newer_client_is_served_in_every_form_that_a_table_has(server: Server) -> None:
    """The newest table, and for a caller that is in no table the older ones, too."""
    old = V0_3_11.functions["ExistKey"]
    assert old.request is not None
    assert EXIST.request is not None
    old_body = pack(old.request, b"k")
    assert await refused(server, old.id, old_body) == Err.INVALID_ARGUMENT, "it may be a client of 0.3.11"
    assert await refused(server, function_id(SERVICE + "ExistKeyInTheYear2030"), b"") == Err.NOT_REGISTERED
    channel = await open_channel(*server.listeners[0].address, timeout_ms=WAIT_MS)
    for function, body in ((EXIST, pack(EXIST.request, (b"k", b"default"))), (old, old_body)):
        answer = await channel.raw_call(function.id, body, timeout_ms=WAIT_MS)
        assert unpack(function.returns, answer.body) is False
    channel.close()


async def test_a_truncated_request_is_not_reported_as_another_release(server: Server) -> None:
    assert EXIST.request is not None
    whole = pack(EXIST.request, (b"k", b"default"))
    for body in (b"", b"xy", whole[:-3]):
        assert await refused(server, EXIST.id, body) == Err.INVALID_ARGUMENT
    assert not server.listeners[0].mismatches
