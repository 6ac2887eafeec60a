"""The original's tests of STM, under their own names, and those of what it does not have."""

from __future__ import annotations

import asyncio
import random

import pytest

from leasehold.concurrency import Isolation, Stm, TooMuchConflict, stm
from leasehold.coord.api import Coord
from leasehold.mvcc.model import prefix_end


async def test_get(coord: Coord, name: str) -> None:
    """TestGet: without keys the answer is empty; of several the first one counts; absent is empty."""

    async def apply(tx: Stm) -> tuple[bytes, bytes, bytes]:
        return await tx.get(), await tx.get(f"{name}/a", f"{name}/b"), await tx.get(f"{name}/none")

    await coord.put(f"{name}/a".encode(), b"1")
    await coord.put(f"{name}/b".encode(), b"2")
    assert (await stm(coord, apply)).value == (b"", b"1", b"")


async def transfer_many(coord: Coord, name: str, accounts: int, transfers: int) -> int:
    keys = [f"{name}/{number}" for number in range(accounts)]
    for key in keys:
        await coord.put(key.encode(), b"100")

    async def transfer(seed: int) -> None:
        chance = random.Random(seed)
        source, target = chance.sample(keys, 2)

        async def apply(tx: Stm) -> None:
            have, other = int(await tx.get(source)), int(await tx.get(target))
            moved = min(have, chance.randrange(50))
            tx.put(source, str(have - moved))
            tx.put(target, str(other + moved))

        await stm(coord, apply)

    await asyncio.gather(*map(transfer, range(transfers)))
    prefix = f"{name}/".encode()
    return sum(int(kv.value) for kv in (await coord.get(prefix, prefix_end(prefix))).kvs)


async def test_stm_conflict(coord: Coord, name: str) -> None:
    """TestSTMConflict: many transfers between few accounts; not a penny is made or lost."""
    assert await transfer_many(coord, name, 5, 20) == 500


async def test_example_stm_apply(coord: Coord, name: str) -> None:
    """ExampleSTM_apply"""
    assert await transfer_many(coord, name, 5, 10) == 500


async def test_stm_put_new_key(coord: Coord, name: str) -> None:
    """TestSTMPutNewKey: a key that does not exist is created."""

    async def apply(tx: Stm) -> None:
        tx.put(f"{name}/new", "bar")

    done = await stm(coord, apply)
    kv = await coord.get_one(f"{name}/new".encode())
    assert kv is not None
    assert (kv.value, kv.mod_revision) == (b"bar", done.header.revision)


async def test_stm_abort(coord: Coord, name: str) -> None:
    """TestSTMAbort: an error inside, or cancellation, writes nothing."""

    async def fails(tx: Stm) -> None:
        tx.put(f"{name}/a", "bar")
        raise ValueError("no")

    async def hangs(tx: Stm) -> None:
        tx.put(f"{name}/a", "bar")
        await asyncio.sleep(60)

    with pytest.raises(ValueError, match="no"):
        await stm(coord, fails)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(stm(coord, hangs), 0.02)
    assert await coord.get_one(f"{name}/a".encode()) is None


async def test_stm_serialize(coord: Coord, name: str) -> None:
    """TestSTMSerialize: readers see all keys of a writer's transaction at the same value, never a mixture."""
    keys = [f"{name}/{number}" for number in range(5)]

    async def write(value: int) -> None:
        async def apply(tx: Stm) -> None:
            for key in keys:
                tx.put(key, str(value))

        await stm(coord, apply, isolation=Isolation.SERIALIZABLE)

    async def read() -> set[bytes]:
        async def apply(tx: Stm) -> set[bytes]:
            return {await tx.get(key) for key in keys}

        return (await stm(coord, apply, isolation=Isolation.SERIALIZABLE)).value

    await write(0)
    writing = asyncio.gather(*(write(value) for value in range(1, 15)))
    seen = [await read() for _ in range(15)]
    await writing
    assert all(len(values) == 1 for values in seen)


async def test_stm_apply_on_concurrent_deletion(coord: Coord, name: str) -> None:
    """TestSTMApplyOnConcurrentDeletion: a key deleted between read and commit makes the transaction run again."""
    key = f"{name}/foo".encode()
    await coord.put(key, b"bar")
    attempts = 0

    async def apply(tx: Stm) -> None:
        nonlocal attempts
        attempts += 1
        await tx.get(key)
        if attempts == 1:
            await coord.delete(key)
        tx.put(key, "baz")

    done = await stm(coord, apply, isolation=Isolation.REPEATABLE_READS)
    assert attempts == done.attempts == 2
    kv = await coord.get_one(key)
    assert kv is not None
    assert kv.value == b"baz"


async def test_stm_serializable_snapshot_put(coord: Coord, name: str) -> None:
    """TestSTMSerializableSnapshotPut: another one's write to what is only written makes it run again."""
    read, written = f"{name}/a".encode(), f"{name}/b".encode()
    await coord.put(read, b"0")
    await coord.put(written, b"0")
    attempts = 0

    async def apply(tx: Stm) -> None:
        nonlocal attempts
        attempts += 1
        await tx.get(read)
        if attempts == 1:
            await coord.put(written, b"other")
        tx.put(written, "mine")

    await stm(coord, apply)
    assert attempts == 2
    kv = await coord.get_one(written)
    assert kv is not None
    assert (kv.value, kv.version) == (b"mine", 3)


@pytest.mark.parametrize("change", ["add", "change", "delete", "none"])
async def test_a_range_read_conflicts_with_every_change_in_it(coord: Coord, name: str, change: str) -> None:
    for letter in "abc":
        await coord.put(f"{name}/{letter}".encode(), b"1")
    attempts = 0

    async def apply(tx: Stm) -> int:
        nonlocal attempts
        attempts += 1
        total = sum(map(int, (await tx.get_prefix(f"{name}/")).values()))
        if attempts == 1 and change == "add":
            await coord.put(f"{name}/d".encode(), b"1")
        if attempts == 1 and change == "change":
            await coord.put(f"{name}/a".encode(), b"2")
        if attempts == 1 and change == "delete":
            await coord.delete(f"{name}/c".encode())
        tx.put(f"{name}.sum", str(total))
        return total

    expected = {"add": (4, 2), "change": (4, 2), "delete": (2, 2), "none": (3, 1)}
    assert ((await stm(coord, apply)).value, attempts) == expected[change]


async def test_own_writes_are_seen_by_reads(coord: Coord, name: str) -> None:
    await coord.put(f"{name}/old".encode(), b"1")

    async def apply(tx: Stm) -> tuple[bytes, bytes, dict[bytes, bytes], int]:
        tx.put(f"{name}/new", "2")
        tx.delete(f"{name}/old")
        found = await tx.get_prefix(f"{name}/")
        return await tx.get(f"{name}/new"), await tx.get(f"{name}/old"), found, await tx.rev(f"{name}/new")

    new, old, found, revision = (await stm(coord, apply)).value
    assert (new, old, found, revision) == (b"2", b"", {f"{name}/new".encode(): b"2"}, 0)


async def test_retries_are_bounded(coord: Coord, name: str) -> None:
    key = f"{name}/hot".encode()

    async def apply(tx: Stm) -> None:
        await tx.get(key)
        await coord.put(key, b"always another writer")
        tx.put(key, "me")

    with pytest.raises(TooMuchConflict):
        await stm(coord, apply, attempts_max=5)


async def test_prefetch_saves_round_trips_and_reads_one_revision(coord: Coord, name: str) -> None:
    keys = [f"{name}/{letter}" for letter in "abc"]
    for key in keys:
        await coord.put(key.encode(), b"0")

    async def apply(tx: Stm) -> list[bytes]:
        for key in keys:
            await coord.put(key.encode(), b"later")
        return [await tx.get(key) for key in keys]

    done = await stm(coord, apply, prefetch=keys, isolation=Isolation.READ_COMMITTED)
    assert done.value == [b"0", b"0", b"0"]


async def test_read_committed_lets_the_last_writer_win(coord: Coord, name: str) -> None:
    key = f"{name}/a".encode()

    async def apply(tx: Stm) -> None:
        await tx.get(key)
        await coord.put(key, b"other")
        tx.put(key, "mine")

    assert (await stm(coord, apply, isolation=Isolation.READ_COMMITTED)).attempts == 1


async def test_a_compaction_between_two_reads_starts_again(coord: Coord, name: str) -> None:
    first, second = f"{name}/a".encode(), f"{name}/b".encode()
    await coord.put(first, b"1")
    attempts = 0

    async def apply(tx: Stm) -> bytes:
        nonlocal attempts
        attempts += 1
        await tx.get(first)
        if attempts == 1:
            await coord.put(second, b"x")
            await coord.compact((await coord.put(second, b"y")).header.revision)
        return await tx.get(second)

    assert (await stm(coord, apply)).value == b"y"
