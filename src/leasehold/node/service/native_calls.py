"""Handlers for Leasehold's own functions of the master (`wire/native.py`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from leasehold.base.codes import Code, ReplicaStatus
from leasehold.base.limits import replicas_max, wire_batch_items_max
from leasehold.base.measures import Calls
from leasehold.ha.serving import Serving
from leasehold.index.index import Index
from leasehold.index.model import Object
from leasehold.index.replies import SpaceHandedOut
from leasehold.node.service import commands
from leasehold.node.service.call_counts import CallCounts
from leasehold.node.service.descriptors import message_of
from leasehold.node.service.frames import code_name
from leasehold.node.service.metadata_owners import OwnerPings
from leasehold.node.service.owner_wait import wait_for_owner
from leasehold.node.service.put_config import config_of
from leasehold.node.service.storage_hosts import Grants, StorageHosts
from leasehold.pool.capability import Right
from leasehold.wire.answers import Answer
from leasehold.wire.connection import Connection, Handler
from leasehold.wire.errors import Malformed
from leasehold.wire.frame import response
from leasehold.wire.native import (
    GET,
    HOST_PING,
    PUT_START,
    UPSERT_START,
    Found,
    HostAnswer,
    Located,
    Start,
    Started,
    join_capabilities,
)
from leasehold.wire.rpc import Method


class NativeCalls:
    """Starts that may be repeated, reads that return all replicas, and pings of storage hosts."""

    def __init__(self, serving: Serving, calls: Calls, counts: CallCounts, hosts: StorageHosts) -> None:
        self._serving = serving
        self._hosts = hosts
        self._counts = counts
        self._calls = calls

    def handlers(self) -> dict[int, Handler]:
        """By function id."""
        return {
            PUT_START.id: self._starting(PUT_START, commands.start_many),
            UPSERT_START.id: self._starting(UPSERT_START, commands.start_many_upserts),
            GET.id: self._get,
        }

    def host_ping(self, view_version: Callable[[], int], owner_pings: OwnerPings) -> Handler:
        """The handler for `HOST_PING`."""
        serving, hosts = self._serving, self._hosts

        def handle(connection: Connection, seq: int, body: bytes) -> Answer:
            ping, index = HOST_PING.unpack_request(body), serving.index
            owner_pings.pinged(ping.client_id, connection)
            reply = serving.execute(commands.ping, ping.client_id)
            segment = hosts.pinged(index, serving.now_ms, ping)
            value = HostAnswer(
                epoch=view_version(),
                client_status=reply.value,
                incarnation=segment.incarnation if segment is not None else 0,
                issued=(index.log.last_n + 1) * replicas_max - 1,
                signs=hosts.signs,
                release_ms=index.settings.put_release_ms,
            )
            return serving.answer(reply, response(seq, HOST_PING.pack_answer(value)))

        return handle

    def _starting(self, method: Method[Start, Started], start_many: commands.StartMany) -> Handler:
        serving, counts, hosts = self._serving, self._counts, self._hosts
        count = counts.batches_of("BatchPutStart" if method is PUT_START else "BatchUpsertStart").add

        def handle(connection: Connection, seq: int, body: bytes, until_ms: int = 0) -> Answer:
            request, index = method.unpack_request(body), serving.index
            _bounded(request.keys)
            if index.owners.unproven and index.owners.space_must_wait(request.native):
                return wait_for_owner(serving, seq, partial(handle, connection, seq, body), until_ms, len(body))
            grants = hosts.granting(Right.WRITE)
            reply = serving.execute(_start, request, start_many, grants)
            self._count_failures(method.id, reply.value or [])
            started = [each.size for each in reply.value or () if each.code == 0]
            count(len(request.keys), len(request.keys) - len(started))
            counts.started(started)
            answer = method.pack_answer(Started(reply.value or []))
            return serving.answer(reply, response(seq, answer, attachment=_attachment(grants)))

        return handle

    def _get(self, connection: Connection, seq: int, body: bytes, until_ms: int = 0) -> Answer:
        get, serving, index = GET.unpack_request(body), self._serving, self._serving.index
        _bounded(get.keys)
        reply = serving.execute(commands.get_many, get.tenant, get.keys)
        if index.owners.unproven and any(each is not None and index.owners.must_wait(each) for each in reply.value):
            return wait_for_owner(serving, seq, partial(self._get, connection, seq, body), until_ms, len(body))
        absent = reply.value.count(None)
        self._counts.batches_of("BatchGetReplicaList").add(len(get.keys), absent)
        size = sum(each.size for each in reply.value if each is not None)
        self._counts.got(len(get.keys), len(get.keys) - absent, size)
        grants = self._hosts.granting(Right.READ)
        objects = [
            _located(Code.OK if each is not None else index.reads.miss(get.tenant, key).value, each, grants)
            for key, each in zip(get.keys, reply.value, strict=True)
        ]
        self._count_failures(GET.id, objects)
        answer = GET.pack_answer(Found(objects, index.settings.lease_ttl_ms))
        return serving.answer(reply, response(seq, answer, attachment=_attachment(grants)))

    def _count_failures(self, function: int, results: list[Located]) -> None:
        for each in results:
            if each.code:
                self._calls.failed(function, code_name(each.code))


def _start(
    index: Index, now_ms: int, start: Start, start_many: commands.StartMany, grants: Grants | None
) -> SpaceHandedOut[list[Located]]:
    """Each key has its own request id: that of the call plus the key's position."""
    config = config_of(start.config, index.settings.soft_pin_ttl_max_ms, native=start.native)
    same_length = len(start.keys) == len(start.sizes)
    chosen = config.for_many(len(start.keys)) if same_length else int(Code.BAD_PARAMS)
    if isinstance(chosen, int):
        return SpaceHandedOut(Code.BAD_PARAMS, [Located(chosen) for _ in start.keys], 0)
    objects = zip(start.keys, start.sizes, chosen, strict=True)
    reply = start_many(index, now_ms, start.client_id, start.tenant, objects, start.request)
    located = [_located(each.code, each.value, grants, started=True) for each in reply.value or ()]
    return SpaceHandedOut(Code.OK, located, reply.after)


def _bounded(keys: list[bytes]) -> None:
    if len(keys) > wire_batch_items_max:
        raise Malformed(f"{len(keys)} keys are more than one request may name ({wire_batch_items_max})")


def _located(code: int, found: Object | None, grants: Grants | None, *, started: bool = False) -> Located:
    if found is None:
        return Located(int(code))
    replicas = [each for each in found.replicas if started or each.status == ReplicaStatus.COMPLETE]
    if not replicas:
        return Located(int(Code.NOT_FOUND))  # only on the disk of a Mooncake client, which this caller cannot read
    descriptors = [message_of(each, found.size) for each in replicas]
    if grants is not None:
        for replica, descriptor in zip(replicas, descriptors, strict=True):
            grants.add(replica, descriptor.id, found.size)
    return Located(0, descriptors, found.size, found.checksum)


def _attachment(grants: Grants | None) -> bytes:
    return join_capabilities(grants.given) if grants is not None else b""
