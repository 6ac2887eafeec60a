"""Members of the cluster, and its upkeep: what goes beyond the keys, watches and leases of `leasehold.connect`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

from leasehold.contrib.etcd3 import etcdrpc
from leasehold.coord.url import ConnectOptions
from leasehold.etcd.auth import Authenticator
from leasehold.etcd.endpoints import Endpoint
from leasehold.etcd.transport.channel import not_connected
from leasehold.etcd.transport.tls import tls_context
from leasehold.runtime.portal import Portal

if TYPE_CHECKING:
    from leasehold.contrib.etcd3.client import Etcd3Client


class Alarm:
    """An alarm of one member."""

    def __init__(self, alarm_type: int, member_id: int) -> None:
        self.alarm_type = alarm_type
        self.member_id = member_id


class Member:
    """A member of the cluster."""

    def __init__(
        self, id: int, name: str, peer_urls: list[str], client_urls: list[str], etcd_client: Etcd3Client
    ) -> None:
        self.id = id
        self.name = name
        self.peer_urls = peer_urls
        self.client_urls = client_urls
        self._etcd_client = etcd_client

    def __str__(self) -> str:
        return f"Member {self.id}: peer urls: {self.peer_urls}, client urls: {self.client_urls}"

    def remove(self) -> None:
        """Remove this member from the cluster."""
        self._etcd_client.remove_member(self.id)

    def update(self, peer_urls: list[str]) -> None:
        """Change the addresses under which the other members reach it."""
        self._etcd_client.update_member(self.id, peer_urls)

    @property
    def active_alarms(self) -> Iterator[Alarm]:
        """Its active alarms."""
        return self._etcd_client.list_alarms(member_id=self.id)


class Upkeep:
    """Calls of the services Cluster and Maintenance, at one endpoint. A call is sent once and never repeated."""

    def __init__(self, address: str, options: ConnectOptions, *, secure: bool, portal: Portal) -> None:
        self._portal = portal
        self._timeout_s = options.timeout_s
        self._authenticator, self._endpoint = portal.call(self._open, address, options, secure)

    async def _open(self, address: str, options: ConnectOptions, secure: bool) -> tuple[Authenticator, Endpoint]:
        return Authenticator(options), Endpoint(address, tls_context(options) if secure else None)

    def cluster(self, call: str, **fields: Any) -> Any:
        """Call a method of the service Cluster."""
        return self._portal.call(self._unary, "Cluster", call, call, fields)

    def maintenance(self, call: str, **fields: Any) -> Any:
        """Call a method of the service Maintenance."""
        return self._portal.call(self._unary, "Maintenance", call, call, fields)

    def alarms(self, action: int, member_id: int, alarm_type: int) -> list[Alarm]:
        """Read or change the alarms."""
        found = self.maintenance("Alarm", action=action, memberID=member_id, alarm=alarm_type)
        return [Alarm(alarm.alarm, alarm.memberID) for alarm in found.alarms]

    def snapshot(self, file: IO[bytes]) -> None:
        """Write a snapshot of the member's database to `file`."""
        for message in self._portal.iterate(self._snapshot()):
            file.write(message.blob)

    def close(self) -> None:
        self._portal.call(self._endpoint.close)

    async def _unary(self, service: str, call: str, message: str, fields: dict[str, Any]) -> Any:
        request, response = getattr(etcdrpc, f"{message}Request"), getattr(etcdrpc, f"{message}Response")
        method = self._endpoint.channel.unary(f"/etcdserverpb.{service}/{call}", request, response)
        return await method(request(**fields), timeout=self._timeout_s, metadata=await self._ready())

    async def _snapshot(self) -> Any:
        path = "/etcdserverpb.Maintenance/Snapshot"
        opened = self._endpoint.channel.stream(path, etcdrpc.SnapshotRequest, etcdrpc.SnapshotResponse)
        stream = opened(await self._ready())
        try:
            stream.send(etcdrpc.SnapshotRequest(), last=True)
            while (message := await stream.read()) is not None:
                yield message
        finally:
            stream.cancel()

    async def _ready(self) -> Any:
        if not await self._endpoint.ready(self._timeout_s, insist=False):
            raise not_connected()
        return await self._authenticator.metadata(self._endpoint, self._timeout_s)
