"""Our own clients of a run: they write, read and remove real bytes on storage hosts, and record every call."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from zlib import crc32

from leasehold.base.codes import Code
from leasehold.base.errors import LeaseholdError, PeerError, Refused
from leasehold.index.model import NATIVE_PROTOCOL
from leasehold.pool.errors import TransferFailed
from leasehold.pool.transfer import Transfer
from leasehold.runtime.clock import boot_ns
from leasehold.testing.chaos.history import Call, Extent, Outcome, What
from leasehold.testing.chaos.values import value_of, version_in
from leasehold.wire.client import Client
from leasehold.wire.errors import MasterError
from leasehold.wire.messages import BufferDescriptor, MemoryReplica, ReplicaDescriptor, ReplicateConfig
from leasehold.wire.schema import Failed

CALLS_PER_KEY = 120  # then a new key takes its place: histories stay short, and a blocked key is soon left
SIZES = (128, 3000)
LEASED_READS_MAX = 4
LEASE_MARGIN_MS = 300  # a leased read ends this long before its lease
TIMEOUT_MS = 10_000


class Keys:
    """The keys that several clients share. Each is replaced after a number of calls."""

    def __init__(self, prefix: str, count: int) -> None:
        self._prefix = prefix
        self._calls = [0] * count

    def pick(self, chance: random.Random) -> str:
        place = chance.randrange(len(self._calls))
        self._calls[place] += 1
        return f"{self._prefix}{place}.{self._calls[place] // CALLS_PER_KEY}"


class ChaosClient:
    """One client. `record` receives every call. `stable` decides whether a storage host is never killed."""

    def __init__(
        self,
        name: str,
        masters: Sequence[str],
        keys: Keys,
        seed: int,
        record: Callable[[Call], None],
        stable: Callable[[str], bool],
    ) -> None:
        self._name = name
        self._keys = keys
        self._chance = random.Random(f"client {name} {seed}")
        self._record = record
        self._stable = stable
        self._client = Client(",".join(masters), native=True, timeout_ms=TIMEOUT_MS)
        self._transfer = Transfer(timeout_ms=TIMEOUT_MS)
        self._writes = 0
        self._leased: set[asyncio.Task[None]] = set()

    async def run(self, stop: asyncio.Event) -> None:
        """Call until `stop` is set."""
        try:
            while not stop.is_set():
                await self._one()
                await asyncio.sleep(self._chance.uniform(0.004, 0.016))
            await asyncio.gather(*self._leased)
        finally:
            for task in self._leased:
                task.cancel()
            self._client.close()
            self._transfer.close()

    async def read_all(self, keys: Sequence[str]) -> None:
        """Read each key once, and close the client."""
        try:
            for key in keys:
                await self._read(key)
        finally:
            self._client.close()
            self._transfer.close()

    async def _one(self) -> None:
        key = self._keys.pick(self._chance)
        choice = self._chance.random()
        if choice < 0.30:
            await self._write(key, "upsert")
        elif choice < 0.40:
            await self._write(key, "put")
        elif choice < 0.50:
            await self._remove(key, forced=self._chance.random() < 0.5)
        elif choice < 0.55 and len(self._leased) < LEASED_READS_MAX:
            task = asyncio.create_task(self._read(key, until_the_end_of_its_lease=True))
            self._leased.add(task)
            task.add_done_callback(self._leased.discard)
        else:
            await self._read(key)

    # --- writes

    async def _write(self, key: str, what: What) -> None:
        self._writes += 1
        version = f"{self._name}.{self._writes}"
        value = value_of(key, version, self._chance.randint(*SIZES))
        called_ns, placed_ns = boot_ns(), 0
        extents: tuple[Extent, ...] = ()
        outcome: Outcome
        code = 0
        start = self._client.put_start if what == "put" else self._client.upsert_start
        end = self._client.put_end if what == "put" else self._client.upsert_end
        revoke = self._client.put_revoke if what == "put" else self._client.upsert_revoke
        try:
            places = await start(key, len(value), ReplicateConfig())
            placed_ns = boot_ns()
            buffers = native_buffers(places)
            extents = tuple(Extent(each.transport_endpoint, each.address, each.size) for _, each in buffers)
            try:
                for number, buffer in buffers:
                    await self._transfer.write(buffer, value, number)
            except TransferFailed:
                await revoke(key)
                outcome = "refused"  # by the storage host, and the put was never ended
            else:
                await end(key, checksum=crc32(value))
                outcome = "ok"
        except LeaseholdError as error:
            outcome, code = _outcome(error)
        self._record(
            Call(
                self._name,
                key,
                what,
                called_ns,
                boot_ns(),
                outcome,
                version,
                code=code,
                placed_ns=placed_ns,
                extents=extents,
            )
        )

    async def _remove(self, key: str, *, forced: bool) -> None:
        called_ns = boot_ns()
        outcome: Outcome = "ok"
        code = 0
        try:
            await self._client.remove(key, force=forced)
        except LeaseholdError as error:
            outcome, code = _outcome(error)
        self._record(Call(self._name, key, "remove", called_ns, boot_ns(), outcome, code=code, forced=forced))

    # --- reads

    async def _read(self, key: str, *, until_the_end_of_its_lease: bool = False) -> None:
        called_ns = boot_ns()
        try:
            (found,) = await self._client.batch_get_replica_list([key])
        except LeaseholdError as error:
            outcome, code = _outcome(error)
            self._record(Call(self._name, key, "read", called_ns, boot_ns(), outcome, code=code))
            return
        returned_ns = boot_ns()
        if isinstance(found, Failed):
            outcome = "ok" if found.code == Code.NOT_FOUND else "refused"
            self._record(Call(self._name, key, "read", called_ns, returned_ns, outcome, code=found.code))
            return
        _, buffer = native_buffers(found.replicas)[0]
        lease = found.lease_ttl_ms
        outcome, version, problem = await self._checked_bytes(key, buffer, called_ns, lease)
        extent = Extent(buffer.transport_endpoint, buffer.address, buffer.size)
        self._record(
            Call(
                self._name,
                key,
                "read",
                called_ns,
                returned_ns,
                outcome,
                version,
                extents=(extent,),
                lease_ms=lease,
                problem=problem,
            )
        )
        if until_the_end_of_its_lease and outcome == "ok" and not problem:
            await self._read_again(key, buffer, called_ns, lease, version)

    async def _checked_bytes(
        self, key: str, buffer: BufferDescriptor, called_ns: int, lease_ms: int
    ) -> tuple[Outcome, str | None, str]:
        """Whether the bytes could be read under the lease, the version in them, and what is wrong with them."""
        try:
            data = await self._transfer.read(buffer)
        except TransferFailed:
            return "refused", None, ""
        if boot_ns() >= called_ns + lease_ms * 1_000_000:
            return "refused", None, ""
        version = version_in(key, data)
        if version is not None:
            return "ok", version, ""
        if not self._stable(buffer.transport_endpoint):
            return "refused", None, ""  # a new host has that address, and its checksum shows it
        return "ok", None, f"the bytes at {buffer.transport_endpoint} are not a value of '{key}': {data[:60]!r}"

    async def _read_again(
        self, key: str, buffer: BufferDescriptor, called_ns: int, lease_ms: int, version: str | None
    ) -> None:
        """Read the same bytes shortly before the lease expires: they may not have changed, whatever happened."""
        end_ns = called_ns + (lease_ms - LEASE_MARGIN_MS) * 1_000_000
        await asyncio.sleep(max(self._chance.uniform(0.5, 1.0) * (end_ns - boot_ns()) / 1e9, 0))
        again_ns = boot_ns()
        outcome, second, problem = await self._checked_bytes(key, buffer, called_ns, lease_ms)
        if outcome != "ok":
            return
        if not problem and second != version:
            problem = f"'{key}' under a lease of {lease_ms} ms had the bytes of {version}, then those of {second}"
        if problem:
            problem = f"P2: {problem}"
            self._record(Call(self._name, key, "read", again_ns, boot_ns(), "refused", second, problem=problem))


def native_buffers(replicas: Sequence[ReplicaDescriptor]) -> list[tuple[int, BufferDescriptor]]:
    """The replicas in memory of our own hosts, with their numbers."""
    return [
        (replica.id, replica.place.buffer)
        for replica in replicas
        if isinstance(replica.place, MemoryReplica) and replica.place.buffer.protocol == NATIVE_PROTOCOL
    ]


def _outcome(error: LeaseholdError) -> tuple[Outcome, int]:
    """Refused if the master decided so; unknown if the call may have been carried out."""
    if isinstance(error, MasterError):
        return "refused", error.code
    if isinstance(error, Refused):
        return "refused", 0
    return "unknown", 0 if isinstance(error, PeerError) else -1
