"""Puts that are cancelled, too large, or meet a host that answers nonsense."""

from __future__ import annotations

import asyncio
import signal

import pytest
from tests.pool.conftest import Stage
from tests.pool.test_pool import ready

from leasehold.base import limits
from leasehold.base.errors import InvalidArgument, LeaseholdError
from leasehold.pool import Pool, TransferFailed, transfer
from leasehold.pool.frame import ANSWER, MAGIC, REQUEST
from leasehold.pool.transfer import Transfer
from leasehold.testing.waiting import until
from leasehold.wire.messages import BufferDescriptor


async def test_a_cancelled_put_is_given_back(stage: Stage) -> None:
    """Its key was blocked for half a minute, its space for ten."""
    stage.start_master()
    host = stage.start_host("one")
    async with Pool(stage.master) as pool:
        await ready(pool)
        host.send_signal(signal.SIGSTOP)
        putting = asyncio.create_task(pool.put("k", b"x" * 100_000))
        await asyncio.sleep(0.3)  # it has begun, and waits for the host
        putting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await putting
        host.send_signal(signal.SIGCONT)

        async def free_again() -> bool:
            try:
                await pool.put("k", b"another")
            except LeaseholdError:
                return False
            return True

        await until(free_again, "its key is free, long before half a minute", timeout_s=20)
        assert await pool.get("k") == b"another"


async def test_too_large_an_object_is_refused_before_space_is_requested(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.start_master()
    stage.start_host("one")
    async with Pool(stage.master) as pool:
        await ready(pool)
        monkeypatch.setattr(transfer, "pool_transfer_bytes_max", 1000)
        with pytest.raises(InvalidArgument, match="limit of one transfer"):
            await pool.put_many({"small": b"x", "large": b"x" * 1001})
        assert limits.pool_transfer_bytes_max > 1001
        await pool.put_many({"small": b"x", "large": b"x" * 1000})
        assert await pool.get("large") == b"x" * 1000


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (ANSWER.pack(MAGIC, 77, 0, 0), "status 77"),
        (ANSWER.pack(MAGIC, 0, 3, 0x352441C2) + b"abc", "3 bytes instead of 5"),
        (ANSWER.pack(MAGIC, 0, 5, 1) + b"abcde", "damaged in transit"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "not a storage host"),
    ],
)
async def test_a_host_that_answers_nonsense_is_a_failed_transfer(answer: bytes, message: str) -> None:
    """An unknown status was raised as a `ValueError`; a short answer was taken for the object."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(REQUEST.size)
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    transfer = Transfer(timeout_ms=60_000)
    with pytest.raises(TransferFailed, match=message):
        await transfer.read(BufferDescriptor(5, 0, "leasehold", f"{host}:{port}"))
    transfer.close()
    server.close()
