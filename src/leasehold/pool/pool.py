"""Put and get of real bytes.

    async with Pool("127.0.0.1:50051") as pool:
        await pool.put("key", b"value", replicas=2)
        assert await pool.get("key") == b"value"

A read is under a lease, counted from when the request was sent to the master. Bytes that arrive after it has expired
are never returned: the space may have been reallocated meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from zlib import crc32

from leasehold.base.clock import Clock
from leasehold.base.codes import Code
from leasehold.base.errors import LeaseholdError, PeerError
from leasehold.index.model import NATIVE_PROTOCOL
from leasehold.pool.errors import BytesDamaged, LeaseExpired, TransferFailed
from leasehold.pool.transfer import Transfer, check_size
from leasehold.runtime.clock import BootClock
from leasehold.runtime.closing import AsyncClosing
from leasehold.runtime.tasks import TaskSet
from leasehold.runtime.tls import Tls
from leasehold.wire.client import Client, Key
from leasehold.wire.errors import MasterError
from leasehold.wire.finder import Finder
from leasehold.wire.messages import DEFAULT_TENANT as _DEFAULT_TENANT
from leasehold.wire.messages import (
    BufferDescriptor,
    GetReplicaListResponse,
    MemoryReplica,
    ReplicaDescriptor,
    ReplicateConfig,
    SoftPin,
)
from leasehold.wire.native import GrantedReplica
from leasehold.wire.schema import Failed


class Pool(AsyncClosing):
    """A client of the pool. A refusal of the master raises `MasterError` with its code."""

    def __init__(
        self,
        master: str | Finder,
        *,
        tenant: Key = _DEFAULT_TENANT,
        timeout_ms: int = 10_000,
        host: str = "",
        clock: Clock | None = None,
        tls: Tls | None = None,
    ) -> None:
        """`host`: the host that this client runs on, for a master with `--allocation local-first`.

        With `tls`, `master` is an address of `--rpc-tls`, and storage hosts must have certificates.
        """
        self.client = Client(master, tenant=tenant, native=True, timeout_ms=timeout_ms, tls=tls)
        self._transfer = Transfer(timeout_ms=timeout_ms, tls=tls)
        self._host = host
        self._clock = clock or BootClock()
        self._revoking = TaskSet()

    def close(self) -> None:
        self._transfer.close()
        self.client.close()

    # --- writing

    async def put(
        self,
        key: Key,
        data: bytes,
        *,
        replicas: int = 1,
        replace: bool = False,
        soft_pin: bool = False,
        hard_pin: bool = False,
    ) -> None:
        """Store bytes under a key, in as many replicas as there is space for (at least one); all are written at return.

        A key that exists is refused (-705) unless `replace`; then readers get the old bytes or the new, never a mix.
        """
        (failed,) = await self._put_all([key], [data], self._config(replicas, soft_pin, hard_pin), replace=replace)
        if failed is not None:
            raise failed

    async def put_many(
        self, objects: Mapping[Key, bytes], *, replicas: int = 1, replace: bool = False
    ) -> dict[Key, LeaseholdError]:
        """Store many objects; returns the errors by key (empty if all succeeded)."""
        keys = list(objects)
        failures = await self._put_all(keys, list(objects.values()), self._config(replicas), replace=replace)
        return {key: failed for key, failed in zip(keys, failures, strict=True) if failed is not None}

    async def _put_all(
        self, keys: Sequence[Key], data: Sequence[bytes], config: ReplicateConfig, *, replace: bool
    ) -> list[LeaseholdError | None]:
        for each in data:
            check_size(len(each))  # before any space is requested
        start = self.client.batch_upsert_start if replace else self.client.batch_put_start
        places = await start(keys, [len(each) for each in data], config)
        return list(await asyncio.gather(*(
            self._fill(key, each, place, replace) for key, each, place in zip(keys, data, places, strict=True)
        )))  # fmt: skip

    async def _fill(
        self, key: Key, data: bytes, places: list[ReplicaDescriptor] | Failed, replace: bool
    ) -> LeaseholdError | None:
        """Write one object's replicas and end its put; revoke it if that fails."""
        if isinstance(places, Failed):
            return MasterError(places.code, "UpsertStart" if replace else "PutStart")
        try:
            await self._write_all(key, places, data)
            end = self.client.upsert_end if replace else self.client.put_end
            await end(key, checksum=crc32(data))
        except PeerError as error:
            await self._revoke(key, replace)
            return error
        except asyncio.CancelledError:
            # The caller does not wait. Without this the key would be blocked for 30 s, and the space for ten minutes.
            self._revoking.start(self._revoke(key, replace))
            raise
        except LeaseholdError as error:
            return error  # unknown outcome: the object may exist, so it is not revoked
        return None

    async def _write_all(self, key: Key, places: list[ReplicaDescriptor], data: bytes) -> None:
        """Write all replicas; none is still being written when this raises."""
        reachable = _reachable(places)
        if len(reachable) < len(places):
            raise TransferFailed(f"{key!r} got space that this client cannot write to")
        writes = (self._transfer.write(buffer, data, replica.id, granted(replica)) for replica, buffer in reachable)
        for written in await asyncio.gather(*writes, return_exceptions=True):
            if written is not None:
                raise written

    async def _revoke(self, key: Key, replace: bool) -> None:
        revoke = self.client.upsert_revoke if replace else self.client.put_revoke
        with contextlib.suppress(LeaseholdError):
            await revoke(key)

    # --- reading

    async def get(self, key: Key) -> bytes | None:
        """The bytes, or None if the key does not exist. `LeaseExpired` if reading took too long: try again."""
        (found,) = await self._get_all([key])
        if isinstance(found, LeaseholdError):
            raise found
        return found

    async def get_many(self, keys: Sequence[Key]) -> dict[Key, bytes | LeaseholdError | None]:
        """For each key its bytes, None, or why it could not be read."""
        return dict(zip(keys, await self._get_all(keys), strict=True))

    async def exists(self, key: Key) -> bool:
        """Whether the key can be read. By default the master grants a lease with the answer."""
        return await self.client.exist_key(key)

    async def remove(self, key: Key, *, force: bool = False) -> None:
        """Remove the key; refused (-706) while a client may read it under a lease, unless `force`."""
        await self.client.remove(key, force=force)

    async def _get_all(self, keys: Sequence[Key]) -> list[bytes | LeaseholdError | None]:
        sent_ms = self._clock.now_ms()  # before sending: the master counts from later
        located = await self.client.batch_get_replica_list(keys)
        return list(
            await asyncio.gather(*(self._read(key, each, sent_ms) for key, each in zip(keys, located, strict=True)))
        )

    async def _read(
        self, key: Key, located: GetReplicaListResponse | Failed, sent_ms: int
    ) -> bytes | LeaseholdError | None:
        if isinstance(located, Failed):
            return None if located.code in (Code.NOT_FOUND, Code.NOT_READY) else MasterError(located.code, "Get")
        until_ms = sent_ms + located.lease_ttl_ms
        failed: LeaseholdError = TransferFailed(f"{key!r} has no replica that this client can read")
        for replica, buffer in _reachable(located.replicas):
            if self._clock.now_ms() >= until_ms:
                break
            try:
                data = await self._transfer.read(buffer, granted(replica))
            except TransferFailed as error:
                failed = error  # try the next replica
                continue
            if self._clock.now_ms() >= until_ms:
                break
            if located.checksum is None or crc32(data) == located.checksum:
                return data
            failed = BytesDamaged(f"{key!r}: the copy at {buffer.transport_endpoint} fails its checksum")
        else:
            return failed
        return LeaseExpired(f"reading {key!r} outlived its lease of {located.lease_ttl_ms} ms: try again")

    def _config(self, replicas: int, soft_pin: bool = False, hard_pin: bool = False) -> ReplicateConfig:
        action = SoftPin.ENABLE if soft_pin else SoftPin.PRESERVE
        return ReplicateConfig(replica_num=replicas, soft_pin_action=action, with_hard_pin=hard_pin, host_id=self._host)


def granted(replica: ReplicaDescriptor) -> bytes:
    """The capability that came with a replica; empty if the master gives out none."""
    return replica.capability if isinstance(replica, GrantedReplica) else b""


def _reachable(replicas: Sequence[ReplicaDescriptor]) -> list[tuple[ReplicaDescriptor, BufferDescriptor]]:
    """The replicas that this client can access, in memory of our own hosts."""
    return [
        (replica, replica.place.buffer)
        for replica in replicas
        if isinstance(replica.place, MemoryReplica) and replica.place.buffer.protocol == NATIVE_PROTOCOL
    ]
