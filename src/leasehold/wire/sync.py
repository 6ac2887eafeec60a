"""`leasehold.Client` for synchronous code: the same calls, each waits for its answer.

with SyncClient("127.0.0.1:50051") as master:
    master.exist_key("k")
"""

from __future__ import annotations

from leasehold.runtime.closing import Closing
from leasehold.runtime.portal import Portal, Through
from leasehold.runtime.tls import Tls
from leasehold.wire.client import Client, Key
from leasehold.wire.finder import Finder
from leasehold.wire.messages import DEFAULT_TENANT
from leasehold.wire.tables import NEWEST, Release


class SyncClient(Closing):
    """Every method of `Client` under the same name, run on a portal's loop. May be used from many threads."""

    def __init__(
        self,
        master: str | Finder,
        *,
        tenant: Key = DEFAULT_TENANT,
        client_id: bytes | None = None,
        native: bool = False,
        release: Release = NEWEST,
        timeout_ms: int = 10_000,
        tls: Tls | None = None,
        portal: Portal | None = None,
    ) -> None:
        self.portal = portal or Portal.shared()

        async def make() -> Client:  # on the loop that will run it
            return Client(
                master,
                tenant=tenant,
                client_id=client_id,
                native=native,
                release=release,
                timeout_ms=timeout_ms,
                tls=tls,
            )

        self.client = self.portal.call(make)

    @property
    def core(self) -> Client:
        return self.client

    service_ready = Through(Client.service_ready)
    storage_config = Through(Client.storage_config)
    fsdir = Through(Client.fsdir)
    ping = Through(Client.ping)
    exist_key = Through(Client.exist_key)
    batch_exist_key = Through(Client.batch_exist_key)
    get_replica_list = Through(Client.get_replica_list)
    batch_get_replica_list = Through(Client.batch_get_replica_list)
    get_replica_list_by_regex = Through(Client.get_replica_list_by_regex)
    put_start = Through(Client.put_start)
    batch_put_start = Through(Client.batch_put_start)
    put_end = Through(Client.put_end)
    batch_put_end = Through(Client.batch_put_end)
    put_revoke = Through(Client.put_revoke)
    batch_put_revoke = Through(Client.batch_put_revoke)
    upsert_start = Through(Client.upsert_start)
    batch_upsert_start = Through(Client.batch_upsert_start)
    upsert_end = Through(Client.upsert_end)
    batch_upsert_end = Through(Client.batch_upsert_end)
    upsert_revoke = Through(Client.upsert_revoke)
    batch_upsert_revoke = Through(Client.batch_upsert_revoke)
    remove = Through(Client.remove)
    batch_remove = Through(Client.batch_remove)
    remove_by_regex = Through(Client.remove_by_regex)
    remove_all = Through(Client.remove_all)
    batch_replica_clear = Through(Client.batch_replica_clear)
    evict_disk_replica = Through(Client.evict_disk_replica)
    batch_evict_disk_replica = Through(Client.batch_evict_disk_replica)
    mount_segment = Through(Client.mount_segment)
    remount_segment = Through(Client.remount_segment)
    unmount_segment = Through(Client.unmount_segment)
    graceful_unmount_segment = Through(Client.graceful_unmount_segment)
    query_segment_status = Through(Client.query_segment_status)
    query_segment_status_by_id = Through(Client.query_segment_status_by_id)
    batch_query_ip = Through(Client.batch_query_ip)
    create_copy_task = Through(Client.create_copy_task)
    create_move_task = Through(Client.create_move_task)
    query_task = Through(Client.query_task)
    fetch_tasks = Through(Client.fetch_tasks)
    mark_task_to_complete = Through(Client.mark_task_to_complete)
    copy_start = Through(Client.copy_start)
    copy_end = Through(Client.copy_end)
    copy_revoke = Through(Client.copy_revoke)
    move_start = Through(Client.move_start)
    move_end = Through(Client.move_end)
    move_revoke = Through(Client.move_revoke)

    def close(self) -> None:
        async def end() -> None:
            self.client.close()

        self.portal.call(end)
