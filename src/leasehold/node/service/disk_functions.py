"""The functions of the disk tier (Mooncake's SSD offload). Off by default, as in the C++ master."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from leasehold.base.codes import Code
from leasehold.ha.serving import Serving
from leasehold.index.disk_commands import DiskTask, Written
from leasehold.index.replies import NOTHING_SHOWN, Acknowledged, Answered, Reply
from leasehold.node.service import commands
from leasehold.node.service.descriptors import message_of
from leasehold.wire import messages as m
from leasehold.wire.schema import Failed

Result = tuple[Any, Reply]


class DiskFunctions:
    """One method for each function, with the arguments of its table: the value to send, and the command's reply."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._execute = serving.execute

    def get_storage_config(self) -> Result:
        settings = self._serving.index.settings
        return m.StorageConfig(settings.shared_dir, settings.disk_eviction, settings.disk_quota_bytes), NOTHING_SHOWN

    def get_fsdir(self) -> Result:
        return self._serving.index.settings.shared_dir, NOTHING_SHOWN

    # --- owners ---

    def mount_local_disk_segment(self, client: bytes, offloading: bool) -> Result:
        return _done(self._execute(commands.mount_disk, client, offloading))

    def unmount_local_disk_segment(self, client: bytes) -> Result:
        return _done(self._execute(commands.unmount_disk, client))

    def report_ssd_capacity(self, client: bytes, capacity_bytes: int) -> Result:
        return _done(self._execute(commands.report_disk, client, capacity_bytes))

    def poll_remove_all(self, client: bytes) -> Result:
        return _value(self._execute(commands.poll_remove_all, client))

    # --- writing to disk ---

    def offload_object_heartbeat(self, client: bytes, offloading: bool) -> Result:
        return _tasks(self._execute(commands.offload_heartbeat, client, offloading))

    def notify_offload_success(
        self, client: bytes, items: Sequence[m.OffloadItem], metadata: Sequence[m.OffloadedMeta]
    ) -> Result:
        if len(items) != len(metadata):
            return Failed(Code.BAD_PARAMS), NOTHING_SHOWN
        notices = [
            Written(item.tenant, item.key, meta.bucket_id, meta.offset, meta.key_size, meta.data_size, meta.endpoint)
            for item, meta in zip(items, metadata, strict=True)
        ]
        return _done(self._execute(commands.offloaded, client, notices))

    def evict_disk_replica(self, client: bytes, key: bytes, tenant: bytes, kind: int) -> Result:
        values, reply = self.batch_evict_disk_replica(client, [key], tenant, kind)
        return values[0], reply

    def batch_evict_disk_replica(self, client: bytes, keys: list[bytes], tenant: bytes, kind: int) -> Result:
        reply = self._execute(commands.evict_disk, client, tenant, keys, kind)
        return [None if code == Code.OK else Failed(code) for code in reply.value], reply

    # --- reading back into memory ---

    def promotion_object_heartbeat(self, client: bytes) -> Result:
        return _tasks(self._execute(commands.promotion_heartbeat, client))

    def promotion_alloc_start(
        self, client: bytes, key: bytes, tenant: bytes, size: int, preferred: Sequence[str]
    ) -> Result:
        reply = self._execute(commands.promotion_start, client, tenant, key, size, preferred)
        if reply.value is None:
            return Failed(reply.code), reply
        return m.PromotionPlan(message_of(reply.value.replicas[0], size)), reply

    def notify_promotion_success(self, client: bytes, key: bytes, tenant: bytes) -> Result:
        return _done(self._execute(commands.promotion_end, client, tenant, key))

    def notify_promotion_failure(self, client: bytes, key: bytes, tenant: bytes) -> Result:
        return _done(self._execute(commands.promotion_failed, client, tenant, key))


def _done(reply: Acknowledged) -> Result:
    return (None if reply.code == Code.OK else Failed(reply.code)), reply


def _value(reply: Answered[Any]) -> Result:
    return (reply.value if reply.code == Code.OK else Failed(reply.code)), reply


def _tasks(reply: Answered[list[DiskTask]]) -> Result:
    if reply.code != Code.OK:
        return Failed(reply.code), reply
    return [m.OffloadItem(tenant, key, size) for (tenant, key), size in reply.value], reply
