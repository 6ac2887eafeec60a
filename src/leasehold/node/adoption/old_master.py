"""A running `mooncake_master`, read through its RPC and its admin port. Nothing here changes it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import msgspec
from msgspec import Struct

from leasehold.base.decoding import UNDECODABLE
from leasehold.base.errors import PeerError, Refused, Unavailable
from leasehold.index.adoption import CHANGED, ListedObject, Place, ReportedSegment
from leasehold.index.model import SegmentSpec
from leasehold.wire import messages as m
from leasehold.wire.caller import Caller
from leasehold.wire.errors import MasterError, RpcRefused
from leasehold.wire.finder import AddressList, parse_address
from leasehold.wire.schema import Failed
from leasehold.wire.tables import Release

Progress = Callable[[int, int], None]  # done, total

_CALL_MS: Final = 60_000
_ADMIN_S: Final = 10.0
_KEYS_PER_CALL: Final = 1_000
_ALL_KEYS: Final = b"^"  # matches every key in one step, without the recursion of `.*`
_COUNTER: Final = re.compile(r"^master_(\w+?)_requests_total (\d+)", re.MULTILINE)
_KEY_COUNT: Final = re.compile(r"^master_key_count (\d+)", re.MULTILINE)


class _Detail(Struct):
    segment_name: str
    segment_id: str
    client_id: str
    base_address: str
    size_bytes: int
    te_endpoint: str
    protocol: str
    status: str
    allocator_used_bytes: int = 0


class _Details(Struct):
    segments: list[_Detail] = []


class _Leader(Struct):
    present: bool = False


class Listing:
    """One pass over the objects. `changed`: keys whose replicas differed between the two readings of the pass."""

    def __init__(self) -> None:
        self.objects: list[ListedObject] = []
        self.lease_ms = 0
        self.changed: list[bytes] = []

    def add(self, tenant: bytes, key: bytes, found: list[m.ReplicaDescriptor], answer: Any) -> None:
        """An object as the pattern found it, and the answer for its key."""
        if isinstance(answer, Failed) or answer.replicas != found:
            self.changed.append(key)
            return
        self.lease_ms = max(self.lease_ms, answer.lease_ttl_ms)
        places = tuple(
            Place(one.place.buffer.transport_endpoint, one.place.buffer.address, one.place.buffer.size)
            for one in found
            if one.status == m.ReplicaStatus.COMPLETE and isinstance(one.place, m.MemoryReplica)
        )
        self.objects.append(ListedObject(tenant, key, places, answer.checksum))


class CallCount(Struct, frozen=True):
    """How often each function was called since the master started, and how many keys it has."""

    calls: dict[str, int]
    keys: int

    def since(self, before: CallCount) -> dict[str, int]:
        """The functions that were called since, and how often."""
        grown = {name: count - before.calls.get(name, 0) for name, count in self.calls.items()}
        return {name: count for name, count in grown.items() if count}


class OldMaster:
    """Connections to one master. `own_calls` are the calls made here, as the master counts them."""

    def __init__(self, rpc: str, admin: str, release: Release) -> None:
        self.rpc, self.admin = parse_address(rpc), parse_address(admin)
        self.own_calls: dict[str, int] = {}
        self._rpc_text, self._admin_text = rpc, admin
        self._caller = Caller(AddressList([self.rpc]), release=release, timeout_ms=_CALL_MS)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_ADMIN_S))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._caller.close()
        if self._session is not None:
            await self._session.close()

    # --- the admin port ---

    async def check(self) -> None:
        """Raise unless both ports belong to a serving master of this release."""
        role = (await self._get("/role")).decode(errors="replace").strip()
        if role != "leader":
            raise Refused(
                f"the master at {self._admin_text} is {role!r}, not the leader: name the leading master with --from"
            )
        try:
            await self._call("ServiceReady", "service_ready")
        except (MasterError, RpcRefused) as error:
            raise Refused(
                f"{self._rpc_text} does not answer as a mooncake_master ({error}): name its RPC port with --from, and "
                "its release with --release"
            ) from None

    async def has_standbys(self) -> bool:
        """Whether it is one of several masters, of which another may take over."""
        return msgspec.json.decode(await self._get("/leader"), type=_Leader).present

    async def segments(self) -> list[ReportedSegment]:
        """The mounted segments, with the ids of segment and client."""
        try:
            details = msgspec.json.decode(await self._get("/get_segments_detail"), type=_Details)
        except UNDECODABLE as error:
            raise Refused(f"{self._admin_text}/get_segments_detail has an unknown form: {error}") from None
        return [_segment(one) for one in details.segments if one.status == "OK"]

    async def count(self) -> CallCount:
        """The master's own counters."""
        text = (await self._get("/metrics")).decode(errors="replace")
        calls = {name: int(count) for name, count in _COUNTER.findall(text)}
        keys = _KEY_COUNT.search(text)
        if "ping" not in calls or keys is None:
            raise Refused(
                f"http://{self._admin_text}/metrics has no counters of a mooncake_master: name its admin port with "
                "--from-admin (its flag --metrics_port)"
            )
        return CallCount(calls, int(keys.group(1)))

    async def tenants(self) -> set[bytes]:
        """The tenants that have a quota, if the master knows tenants."""
        try:
            found = msgspec.json.decode(await self._get("/api/v1/tenant_quotas"))
        except (*UNDECODABLE, Refused):
            return set()
        rows = found.get("data", found.get("tenants", [])) if isinstance(found, dict) else found
        rows = rows if isinstance(rows, list) else [rows]
        return {str(row["tenant_id"]).encode() for row in rows if isinstance(row, dict) and "tenant_id" in row}

    async def _get(self, path: str) -> bytes:
        url = f"http://{self._admin_text}{path}"
        if self._session is None:
            raise Unavailable("not connected: use `async with`")
        try:
            async with self._session.get(url) as answer:
                body = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(
                f"{url} does not answer ({error or type(error).__name__}): name the admin port of the old master with "
                "--from-admin HOST:PORT (its flag --metrics_port)"
            ) from None
        if answer.status != 200:
            raise Refused(f"{url} answers {answer.status}: {body[:200].decode(errors='replace')}")
        return body

    # --- the RPC port ---

    async def listing(self, tenants: tuple[bytes, ...], progress: Progress) -> Listing:
        """Read every object twice: where it is, by pattern, and then its checksum and lease term, by key."""
        listing = Listing()
        for tenant in tenants:
            found: dict[bytes, list[m.ReplicaDescriptor]] = await self._call(
                "GetReplicaListByRegex", "get_replica_list_by_regex", _ALL_KEYS, tenant
            )
            keys = list(found)
            for start in range(0, len(keys), _KEYS_PER_CALL):
                some = keys[start : start + _KEYS_PER_CALL]
                again = await self._call("BatchGetReplicaList", "batch_get_replica_list", some, tenant)
                for key, answer in zip(some, again, strict=True):
                    listing.add(tenant, key, found[key], answer)
                progress(start + len(some), len(keys))
        return listing

    async def _call(self, function: str, counter: str, *arguments: Any) -> Any:
        self.own_calls[counter] = self.own_calls.get(counter, 0) + 1
        try:
            return await self._caller.mooncake(function, *arguments)
        except RpcRefused as error:
            raise Refused(
                f"{self._rpc_text} refuses {function} ({error}): it speaks another release; name it with --release"
            ) from None
        except PeerError as error:
            raise Unavailable(f"{self._rpc_text} did not answer {function}: {error}") from None

    async def open_witness(self) -> Witness:
        """A connection that ends when the process ends."""
        try:
            reader, writer = await asyncio.open_connection(*self.rpc)
        except OSError as error:
            raise Unavailable(f"{self._rpc_text} does not accept a connection: {error}") from None
        return Witness(reader, writer)


class Witness:
    """An idle connection to a process: its kernel ends it when the process dies, not when it is stopped."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ended(self, timeout_s: float) -> bool:
        """Whether the other side closed it within this time."""
        try:
            async with asyncio.timeout(timeout_s):
                while await self._reader.read(4096):
                    pass
        except TimeoutError:
            return False
        except OSError:
            return True
        return True

    def close(self) -> None:
        self._writer.close()


def _segment(one: _Detail) -> ReportedSegment:
    spec = SegmentSpec(
        _id(one.segment_id), one.segment_name, int(one.base_address, 16), one.size_bytes, one.te_endpoint, one.protocol
    )
    return ReportedSegment(spec, _id(one.client_id), one.allocator_used_bytes)


def _id(text: str) -> bytes:
    """An id that is printed as two numbers."""
    first, _, second = text.partition("-")
    try:
        return int(first).to_bytes(8, "little") + int(second).to_bytes(8, "little")
    except (ValueError, OverflowError):
        raise Refused(f"the old master reports the id {text!r}, which is not two numbers") from None


__all__ = ["CHANGED", "CallCount", "Listing", "OldMaster", "Witness"]
