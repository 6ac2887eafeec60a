"""`leasehold.Client`: every call of the master, typed, with a deadline, and with reconnects.

    async with Client("127.0.0.1:50051") as master:
        if await master.exist_key("k"):
            found = await master.get_replica_list("k")

A refused call raises `MasterError` with its code; a batch returns one result or `Failed(code)` per key.
A call that was sent and not answered raises `CallLost` (outcome unknown), unless repeating it is harmless: reads,
pings, mounts, and starts of puts, which carry a request id and get the same space again.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from leasehold.runtime.closing import AsyncClosing
from leasehold.runtime.tls import Tls
from leasehold.wire import messages as m
from leasehold.wire.caller import Caller
from leasehold.wire.errors import MasterError, RpcRefused
from leasehold.wire.finder import AddressList, Finder, parse_address
from leasehold.wire.frame import Err
from leasehold.wire.native import (
    GET,
    PUT_START,
    UPSERT_START,
    Get,
    Located,
    Start,
    Started,
    split_capabilities,
)
from leasehold.wire.rpc import Method
from leasehold.wire.schema import Failed
from leasehold.wire.tables import NEWEST, Release

Key = str | bytes
ALL = int(m.ReplicaKind.ALL)


def _raw(key: Key) -> bytes:
    return key.encode() if isinstance(key, str) else key


def _raws(keys: Sequence[Key]) -> list[bytes]:
    return [_raw(key) for key in keys]


class Client(AsyncClosing):
    """Client of a Mooncake master, Leasehold's or the C++ one: every call, under its name there.

    Keys are str or bytes. A refused call raises `MasterError` with its `code`; a `batch_...` call returns a result or
    `Failed(code)` per key. A call that was sent and not answered raises `CallLost` unless repeating it is safe.
    `native`: place objects on our own storage hosts (`leasehold host`), not in Mooncake's memory. To read and write
    their bytes use `leasehold.pool.Pool`, which is built on this class.
    """

    def __init__(
        self,
        master: str | Finder,
        *,
        tenant: Key = m.DEFAULT_TENANT,
        client_id: bytes | None = None,
        native: bool = False,
        release: Release = NEWEST,
        timeout_ms: int = 10_000,
        tls: Tls | None = None,
    ) -> None:
        """`master` is `HOST:PORT`, several separated by commas, or a `Finder` such as `MasterView(coord)`.

        With `tls`, the addresses are those of `--rpc-tls`.
        """
        finder = AddressList([parse_address(each) for each in master.split(",")]) if isinstance(master, str) else master
        self.calls = Caller(finder, release=release, timeout_ms=timeout_ms, tls=tls)
        self.tenant = _raw(tenant)
        self.client_id = client_id or secrets.token_bytes(16)
        self.native = native
        self._plain = False  # the peer is a C++ master, which has only Mooncake's functions

    def close(self) -> None:
        """Close the connection. Nothing is unmounted."""
        self.calls.close()

    # --- about the master

    async def service_ready(self) -> str:
        """The version of the service."""
        return str(await self.calls.mooncake("ServiceReady", repeat=True))

    async def storage_config(self) -> m.StorageConfig:
        answer: m.StorageConfig = await self.calls.mooncake("GetStorageConfig", repeat=True)
        return answer

    async def fsdir(self) -> str:
        """The directory of a shared file system under the pool; "" if there is none."""
        return str(await self.calls.mooncake("GetFsdir", repeat=True))

    async def ping(self) -> m.PingResponse:
        """Stay alive as a storage client. `client_status` 2 means: mount again."""
        answer: m.PingResponse = await self.calls.mooncake("Ping", self.client_id, repeat=True)
        return answer

    # --- reads

    async def exist_key(self, key: Key) -> bool:
        """Whether the object exists; if so, it is leased (unless `exist_leases` is off on the master)."""
        return bool(await self.calls.mooncake("ExistKey", _raw(key), self.tenant, repeat=True))

    async def batch_exist_key(self, keys: Sequence[Key]) -> list[bool | Failed]:
        answer: list[bool | Failed] = await self.calls.mooncake("BatchExistKey", _raws(keys), self.tenant, repeat=True)
        return answer

    async def get_replica_list(self, key: Key) -> m.GetReplicaListResponse:
        """The replicas of an object and the lease on them, which counts from the sending of this call."""
        (found,) = await self.batch_get_replica_list([key])
        if isinstance(found, Failed):
            raise MasterError(found.code, "GetReplicaList")
        return found

    async def batch_get_replica_list(self, keys: Sequence[Key]) -> list[m.GetReplicaListResponse | Failed]:
        if not self._plain:
            try:
                found, attached = await self.calls.own_attached(GET, Get(self.tenant, _raws(keys)), repeat=True)
            except RpcRefused as error:
                self._only_plain(error)
            else:
                return [
                    m.GetReplicaListResponse(each.replicas, found.lease_ttl_ms, each.checksum)
                    if each.code == 0
                    else Failed(each.code)
                    for each in split_capabilities(found.objects, attached)
                ]
        answer: list[m.GetReplicaListResponse | Failed] = await self.calls.mooncake(
            "BatchGetReplicaList", _raws(keys), self.tenant, repeat=True
        )
        return answer

    async def get_replica_list_by_regex(self, pattern: Key) -> dict[bytes, list[m.ReplicaDescriptor]]:
        answer: dict[bytes, list[m.ReplicaDescriptor]] = await self.calls.mooncake(
            "GetReplicaListByRegex", _raw(pattern), self.tenant, repeat=True
        )
        return answer

    # --- puts

    async def put_start(
        self, key: Key, size: int, config: m.ReplicateConfig | None = None
    ) -> list[m.ReplicaDescriptor]:
        """Allocate space for an object: write the bytes there, then call `put_end`."""
        return self._only(await self.batch_put_start([key], [size], config), "PutStart")

    async def batch_put_start(
        self, keys: Sequence[Key], sizes: Sequence[int], config: m.ReplicateConfig | None = None
    ) -> list[list[m.ReplicaDescriptor] | Failed]:
        return await self._start(PUT_START, "BatchPutStart", keys, sizes, config)

    async def put_end(self, key: Key, *, type: int = ALL, checksum: int | None = None) -> None:
        """Finish a put: the bytes are written, so the object becomes readable."""
        await self.calls.mooncake("PutEnd", self.client_id, self._meta(key, checksum), type, self.tenant)

    async def batch_put_end(self, keys: Sequence[Key], *, type: int = ALL) -> list[Failed | None]:
        objects = [self._meta(key, None) for key in keys]
        return await self._many("BatchPutEnd", self.client_id, objects, type, self.tenant)

    async def put_revoke(self, key: Key, *, type: int = ALL) -> None:
        """Cancel an unfinished put and free its space."""
        await self.calls.mooncake("PutRevoke", self.client_id, _raw(key), type, self.tenant)

    async def batch_put_revoke(self, keys: Sequence[Key], *, type: int = ALL) -> list[Failed | None]:
        return await self._many("BatchPutRevoke", self.client_id, _raws(keys), type, self.tenant)

    async def upsert_start(
        self, key: Key, size: int, config: m.ReplicateConfig | None = None
    ) -> list[m.ReplicaDescriptor]:
        """Like `put_start`, but may replace an existing object."""
        return self._only(await self.batch_upsert_start([key], [size], config), "UpsertStart")

    async def batch_upsert_start(
        self, keys: Sequence[Key], sizes: Sequence[int], config: m.ReplicateConfig | None = None
    ) -> list[list[m.ReplicaDescriptor] | Failed]:
        return await self._start(UPSERT_START, "BatchUpsertStart", keys, sizes, config)

    async def upsert_end(self, key: Key, *, type: int = ALL, checksum: int | None = None) -> None:
        await self.calls.mooncake("UpsertEnd", self.client_id, self._meta(key, checksum), type, self.tenant)

    async def batch_upsert_end(self, keys: Sequence[Key]) -> list[Failed | None]:
        objects = [self._meta(key, None) for key in keys]
        return await self._many("BatchUpsertEnd", self.client_id, objects, self.tenant)

    async def upsert_revoke(self, key: Key, *, type: int = ALL) -> None:
        await self.calls.mooncake("UpsertRevoke", self.client_id, _raw(key), type, self.tenant)

    async def batch_upsert_revoke(self, keys: Sequence[Key]) -> list[Failed | None]:
        return await self._many("BatchUpsertRevoke", self.client_id, _raws(keys), self.tenant)

    # --- removes

    async def remove(self, key: Key, *, force: bool = False) -> None:
        await self.calls.mooncake("Remove", _raw(key), force, self.tenant)

    async def batch_remove(self, keys: Sequence[Key], *, force: bool = False) -> list[Failed | None]:
        return await self._many("BatchRemove", _raws(keys), force, self.tenant)

    async def remove_by_regex(self, pattern: Key, *, force: bool = False) -> int:
        """Remove matching objects and return their number; leased objects stay unless `force`."""
        return int(await self.calls.mooncake("RemoveByRegex", _raw(pattern), force, self.tenant))

    async def remove_all(self, *, force: bool = False) -> int:
        return int(await self.calls.mooncake("RemoveAll", force, self.tenant))

    async def batch_replica_clear(self, keys: Sequence[Key], segment_name: str = "") -> list[bytes]:
        """Remove this client's replicas on a segment (default: all segments); returns the keys that were cleared."""
        answer: list[bytes] = await self.calls.mooncake("BatchReplicaClear", _raws(keys), self.client_id, segment_name)
        return answer

    async def evict_disk_replica(self, key: Key, *, type: int = int(m.ReplicaKind.DISK)) -> None:
        """Forget a replica on disk. This master has none, so it succeeds without any effect."""
        await self.calls.mooncake("EvictDiskReplica", self.client_id, _raw(key), self.tenant, type, repeat=True)

    async def batch_evict_disk_replica(
        self, keys: Sequence[Key], *, type: int = int(m.ReplicaKind.DISK)
    ) -> list[Failed | None]:
        return await self._many("BatchEvictDiskReplica", self.client_id, _raws(keys), self.tenant, type)

    # --- segments

    async def mount_segment(self, segment: m.Segment) -> None:
        await self.calls.mooncake("MountSegment", segment, self.client_id, repeat=True)

    async def remount_segment(self, segments: Sequence[m.Segment]) -> None:
        await self.calls.mooncake("ReMountSegment", list(segments), self.client_id, repeat=True)

    async def unmount_segment(self, segment_id: bytes) -> None:
        await self.calls.mooncake("UnmountSegment", segment_id, self.client_id)

    async def graceful_unmount_segment(self, segment_id: bytes, grace_ms: int) -> None:
        await self.calls.mooncake("GracefulUnmountSegment", segment_id, self.client_id, grace_ms)

    async def query_segment_status(self, name: str) -> int:
        return int(await self.calls.mooncake("QuerySegmentStatus", name, repeat=True))

    async def query_segment_status_by_id(self, segment_id: bytes) -> int:
        return int(await self.calls.mooncake("QuerySegmentStatusById", segment_id, repeat=True))

    async def batch_query_ip(self, client_ids: Sequence[bytes]) -> dict[bytes, list[str]]:
        answer: dict[bytes, list[str]] = await self.calls.mooncake("BatchQueryIp", list(client_ids), repeat=True)
        return answer

    # --- copies and moves

    async def create_copy_task(self, key: Key, targets: Sequence[str]) -> bytes:
        return bytes(await self.calls.mooncake("CreateCopyTask", _raw(key), self.tenant, list(targets)))

    async def create_move_task(self, key: Key, source: str, target: str) -> bytes:
        return bytes(await self.calls.mooncake("CreateMoveTask", _raw(key), self.tenant, source, target))

    async def query_task(self, task_id: bytes) -> m.TaskView:
        answer: m.TaskView = await self.calls.mooncake("QueryTask", task_id, repeat=True)
        return answer

    async def fetch_tasks(self, limit: int = 16) -> list[m.TaskAssignment]:
        answer: list[m.TaskAssignment] = await self.calls.mooncake("FetchTasks", self.client_id, limit)
        return answer

    async def mark_task_to_complete(self, task_id: bytes, status: int, message: str = "") -> None:
        report = m.TaskReport(task_id, status, message)
        await self.calls.mooncake("MarkTaskToComplete", self.client_id, report)

    async def copy_start(self, key: Key, source: str, targets: Sequence[str]) -> m.CopyPlan:
        answer: m.CopyPlan = await self.calls.mooncake(
            "CopyStart", self.client_id, _raw(key), self.tenant, source, list(targets)
        )
        return answer

    async def copy_end(self, key: Key) -> None:
        await self.calls.mooncake("CopyEnd", self.client_id, _raw(key), self.tenant)

    async def copy_revoke(self, key: Key) -> None:
        await self.calls.mooncake("CopyRevoke", self.client_id, _raw(key), self.tenant)

    async def move_start(self, key: Key, source: str, target: str) -> m.MovePlan:
        answer: m.MovePlan = await self.calls.mooncake(
            "MoveStart", self.client_id, _raw(key), self.tenant, source, target
        )
        return answer

    async def move_end(self, key: Key) -> None:
        await self.calls.mooncake("MoveEnd", self.client_id, _raw(key), self.tenant)

    async def move_revoke(self, key: Key) -> None:
        await self.calls.mooncake("MoveRevoke", self.client_id, _raw(key), self.tenant)

    # --- inside

    async def _start(
        self,
        function: Method[Start, Started],
        plain: str,
        keys: Sequence[Key],
        sizes: Sequence[int],
        config: m.ReplicateConfig | None,
    ) -> list[list[m.ReplicaDescriptor] | Failed]:
        """Start puts with our own function, or with Mooncake's if the peer has only that (then without retries)."""
        config = config or m.ReplicateConfig()
        if not self._plain:
            request = secrets.randbits(62) | 1
            start = Start(self.client_id, self.tenant, _raws(keys), list(sizes), config, request, self.native)
            try:
                started, attached = await self.calls.own_attached(function, start, repeat=True)
            except RpcRefused as error:
                self._only_plain(error)
            else:
                return [_replicas(each) for each in split_capabilities(started.objects, attached)]
        answer: list[list[m.ReplicaDescriptor] | Failed] = await self.calls.mooncake(
            plain, self.client_id, _raws(keys), list(sizes), config, self.tenant
        )
        return answer

    def _only_plain(self, error: RpcRefused) -> None:
        if error.err != Err.NOT_REGISTERED or self.native:
            raise error
        self._plain = True

    async def _many(self, name: str, *arguments: Any) -> list[Failed | None]:
        answer: list[Failed | None] = await self.calls.mooncake(name, *arguments)
        return answer

    def _meta(self, key: Key, checksum: int | None) -> m.ObjectMeta | bytes:
        """How this release names an object at the end of its put."""
        return m.ObjectMeta(_raw(key), checksum) if self.calls.release.object_meta else _raw(key)

    @staticmethod
    def _only(results: list[list[m.ReplicaDescriptor] | Failed], call: str) -> list[m.ReplicaDescriptor]:
        (result,) = results
        if isinstance(result, Failed):
            raise MasterError(result.code, call)
        return result


def _replicas(located: Located) -> list[m.ReplicaDescriptor] | Failed:
    return located.replicas if located.code == 0 else Failed(located.code)
