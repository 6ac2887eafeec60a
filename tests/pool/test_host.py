"""A storage host with hostile, slow, late and too many clients."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from zlib import crc32

import pytest

from leasehold.base.errors import InvalidArgument
from leasehold.pool import TransferFailed
from leasehold.pool.budget import Budget
from leasehold.pool.fence import WriteFence
from leasehold.pool.frame import ANSWER, Operation, Status, pack_request
from leasehold.pool.host import Host
from leasehold.pool.settings import HostSettings
from leasehold.pool.transfer import Transfer
from leasehold.testing.waiting import until
from leasehold.wire.finder import parse_address
from leasehold.wire.messages import BufferDescriptor

SIZE = 1 << 20


@asynccontextmanager
async def lending(**changes: int) -> AsyncIterator[tuple[Host, Transfer]]:
    host = Host(SIZE, replace(HostSettings(), **changes))  # type: ignore[arg-type] # all of these are numbers
    await host.start("127.0.0.1:0")
    transfer = Transfer(timeout_ms=60_000)
    try:
        yield host, transfer
    finally:
        transfer.close()
        await host.close()


def at(host: Host, offset: int, size: int) -> BufferDescriptor:
    return BufferDescriptor(size, host.base + offset, "leasehold", host.endpoint)


def write_head(host: Host, offset: int, length: int, checksum: int = 0, number: int = 1) -> bytes:
    return pack_request(Operation.WRITE, length, host.base + offset, checksum, number)


async def test_a_late_write_does_not_touch_reallocated_space() -> None:
    """P3: a writer that was stopped between its put's start and its first byte wrote over its successor's object."""
    async with lending() as (host, transfer):
        await transfer.write(at(host, 128, 64), b"n" * 64, number=32)
        for offset, size in ((128, 64), (0, 256), (64, 128), (190, 10)):
            with pytest.raises(TransferFailed, match="too late"):
                await transfer.write(at(host, offset, size), b"o" * size, number=16)
        assert await transfer.read(at(host, 128, 64)) == b"n" * 64
        await transfer.write(at(host, 0, 128), b"o" * 128, number=16)  # beside it: never written
        await transfer.write(at(host, 128, 64), b"r" * 64, number=32)  # repeated by its owner
        await transfer.write(at(host, 64, 256), b"s" * 256, number=48)  # the next owner
        assert await transfer.read(at(host, 0, 384)) == b"o" * 64 + b"s" * 256 + bytes(64)


def test_the_fence_against_a_naive_one() -> None:
    rng, fence = random.Random(7), WriteFence()
    written = [0] * 64
    for _ in range(5_000):
        offset = rng.randrange(60)
        length, number = rng.randrange(1, 64 - offset + 1), rng.randrange(1, 200)
        admitted = max(written[offset : offset + length]) <= number
        assert fence.admits(offset, length, number) == admitted
        if admitted:
            fence.note(offset, length, number)
            # A partly overwritten extent counts as never written: extents are reallocated as a whole.
            for start in range(64):
                if start not in range(offset, offset + length) and written[start] and _gone(fence, start):
                    written[start] = 0
            written[offset : offset + length] = [number] * length
        if rng.random() < 0.01:
            fence.clear()
            written = [0] * 64
    assert len(fence) <= 64


def _gone(fence: WriteFence, at: int) -> bool:
    return fence.admits(at, 1, 0)


async def test_a_broken_off_write_leaves_no_trace() -> None:
    async with lending() as (host, transfer):
        await transfer.write(at(host, 0, 64), b"a" * 64, number=1)
        _, writer = await asyncio.open_connection(*parse_address(host.endpoint))
        writer.write(write_head(host, 0, 64, crc32(b"b" * 64), 2) + b"b" * 63)
        await writer.drain()
        writer.transport.abort()
        assert await transfer.read(at(host, 0, 64)) == b"a" * 64
        reader, writer = await asyncio.open_connection(*parse_address(host.endpoint))
        writer.write(write_head(host, 0, 64, crc32(b"b" * 64), 2) + b"c" * 64)
        assert ANSWER.unpack(await reader.readexactly(ANSWER.size))[1] == Status.BAD_CHECKSUM
        assert await transfer.read(at(host, 0, 64)) == b"a" * 64
        writer.close()


async def test_half_a_write_and_a_reader_that_takes_nothing_end_in_time() -> None:
    """Each held its memory for as long as it liked."""
    async with lending(transfer_timeout_ms=300) as (host, _):
        half_reader, half = await asyncio.open_connection(*parse_address(host.endpoint))
        half.write(write_head(host, 0, 1000) + b"x")
        async with asyncio.timeout(60):
            assert await half_reader.read() == b""
        slow_reader, slow = await asyncio.open_connection(*parse_address(host.endpoint), limit=1024)
        slow.write(pack_request(Operation.READ, SIZE, host.base) * 20)
        async with asyncio.timeout(60):
            await slow_reader.readexactly(ANSWER.size)
            while host._tasks:  # noqa: ASYNC110 -- the host has no event for this
                await asyncio.sleep(0.02)
        for writer in (half, slow):
            writer.close()


async def test_bytes_in_flight_are_bounded_over_all_connections() -> None:
    async with lending(buffered_bytes=SIZE, transfer_timeout_ms=60_000) as (host, transfer):
        half = SIZE // 2
        opened = [await asyncio.open_connection(*parse_address(host.endpoint)) for _ in range(8)]
        for _, writer in opened:
            writer.write(write_head(host, 0, half, crc32(bytes(half))) + bytes(1000))
        await until(lambda: host._budget.used == SIZE, "it holds what it may")
        await asyncio.sleep(0.1)
        assert host._budget.used == SIZE
        for _, writer in opened:
            writer.write(bytes(half - 1000))
        for reader, writer in opened:
            assert ANSWER.unpack(await reader.readexactly(ANSWER.size))[1] == Status.OK
            writer.close()
        assert await transfer.read(at(host, 0, 100)) == bytes(100)
        assert host._budget.used == 0


async def test_connections_beyond_the_limit_are_closed() -> None:
    async with lending(connections_max=2) as (host, _):
        opened = [await asyncio.open_connection(*parse_address(host.endpoint)) for _ in range(3)]
        async with asyncio.timeout(60):
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await opened[2][0].readexactly(1)
        assert host.turned_away == 1
        for _, writer in opened:
            writer.close()


async def test_a_host_serves_nothing_before_its_memory_is_mounted() -> None:
    """P1: a put that was acknowledged in this time was lost when the mount ended the earlier process's memory."""
    async with lending() as (host, transfer):
        host.admission.withhold()
        with pytest.raises(TransferFailed, match="not mounted"):
            await transfer.write(at(host, 0, 64), b"n" * 64, number=1)
        with pytest.raises(TransferFailed, match="not mounted"):
            await transfer.read(at(host, 0, 64))
        host.admission.lend()
        await transfer.write(at(host, 0, 64), b"n" * 64, number=1)
        assert await transfer.read(at(host, 0, 64)) == b"n" * 64


async def test_a_host_does_not_advertise_an_unreachable_address() -> None:
    """With 0.0.0.0, every client would have connected to its own machine."""
    host = Host(SIZE)
    with pytest.raises(InvalidArgument, match="--advertise"):
        await host.start("0.0.0.0:0")
    await host.close()


async def test_a_budget_is_given_back_whatever_happens() -> None:
    budget, rng = Budget(100), random.Random(3)

    async def use(count: int) -> None:
        async with budget.take(count):
            assert budget.used <= 100
            await asyncio.sleep(rng.random() / 200)

    tasks = [asyncio.create_task(use(rng.randrange(1, 150))) for _ in range(300)]
    for task in tasks[::3]:
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert budget.used == 0
    async with asyncio.timeout(60):
        await use(100)
