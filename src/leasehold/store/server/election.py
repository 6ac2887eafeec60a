"""The Election service (v3election)."""

from __future__ import annotations

import asyncio

from leasehold.base.errors import CallerError
from leasehold.etcd.pb import election_pb2
from leasehold.mvcc.errors import Compacted
from leasehold.mvcc.model import DeleteRange, EventType, Header, KeyValue, Put, Range, RangeResult, prefix_end
from leasehold.store.client import LocalClient
from leasehold.store.server import convert
from leasehold.store.server.dispatch import Methods
from leasehold.store.server.http2.streams import Handler, Message, StreamCall, parse, unary
from leasehold.store.server.key_queue import created_at, lease_or_new, oldest, queue_key, wait_for_turn


class ElectionRefused(CallerError):
    """Has etcd's own messages."""


NO_LEADER = "election: no leader"
NOT_LEADER = "election: not leader"
MISSING_LEADER = '"leader" field must be provided'


def election_service(client: LocalClient) -> Methods:
    """Method -> handler."""

    async def campaign(m: Message) -> Message:
        lease = await lease_or_new(client, m.lease)
        key = queue_key(m.name, lease)
        header, revision = await _enter(client, key, m.value, lease)
        try:
            await wait_for_turn(client, m.name + b"/", revision)
            # etcd's own service may announce a leader here whose key was deleted.
            if not (await client.txn([created_at(key, revision)])).succeeded:
                raise ElectionRefused("election: session is expired")
        except BaseException:
            await asyncio.shield(client.txn([created_at(key, revision)], [DeleteRange(key)]))
            raise
        leader = election_pb2.LeaderKey(name=m.name, key=key, rev=revision, lease=lease)
        return election_pb2.CampaignResponse(header=convert.header(header), leader=leader)

    async def proclaim(m: Message) -> Message:
        leader = _leader(m)
        put = Put(leader.key, m.value, leader.lease)
        done = await client.txn([created_at(leader.key, leader.rev)], [put])
        if not done.succeeded:
            raise ElectionRefused(NOT_LEADER)
        return election_pb2.ProclaimResponse(header=convert.header(done.header))

    async def leader_of(m: Message) -> Message:
        found = await _front(client, m.name + b"/")
        if not found.kvs:
            raise ElectionRefused(NO_LEADER)
        return _leader_response(found.header, found.kvs[0])

    async def resign(m: Message) -> Message:
        leader = _leader(m)
        done = await client.txn([created_at(leader.key, leader.rev)], [DeleteRange(leader.key)])
        return election_pb2.ResignResponse(header=convert.header(done.header))

    async def observe(call: StreamCall) -> None:
        data = await call.read()
        if data is not None:
            await _observe(client, parse(election_pb2.LeaderRequest, data).name + b"/", call)

    return {
        "Campaign": unary(election_pb2.CampaignRequest, campaign, plain=True),
        "Proclaim": unary(election_pb2.ProclaimRequest, proclaim, plain=True),
        "Leader": unary(election_pb2.LeaderRequest, leader_of, plain=True),
        "Observe": Handler(stream=observe),
        "Resign": unary(election_pb2.ResignRequest, resign, plain=True),
    }


def _leader(m: Message) -> Message:
    if not m.HasField("leader"):
        raise ElectionRefused(MISSING_LEADER)
    return m.leader


def _leader_response(header: Header, kv: KeyValue) -> Message:
    return election_pb2.LeaderResponse(header=convert.header(header), kv=convert.key_value(kv))


async def _front(client: LocalClient, prefix: bytes) -> RangeResult:
    done = await client.txn(success=[oldest(prefix)])
    (found,) = done.results
    assert isinstance(found, RangeResult)
    return RangeResult(done.header, found.kvs)


async def _enter(client: LocalClient, key: bytes, value: bytes, lease: int) -> tuple[Header, int]:
    """Join the queue. Returns the header of the answer, and the create revision of the key."""
    done = await client.txn([created_at(key, 0)], [Put(key, value, lease)], [Range(key)])
    if done.succeeded:
        return done.header, done.header.revision
    (found,) = done.results
    assert isinstance(found, RangeResult)
    kv = found.kvs[0]
    if kv.value != value:
        again = await client.txn([created_at(key, kv.create_revision)], [Put(key, value, lease)])
        if not again.succeeded:
            raise ElectionRefused(NOT_LEADER)
    return done.header, kv.create_revision


async def _observe(client: LocalClient, prefix: bytes, call: StreamCall) -> None:
    """Send every leader and every proclamation, until the caller cancels."""
    while True:
        found = await _front(client, prefix)
        revision = found.header.revision
        if found.kvs:
            await call.write(_leader_response(found.header, found.kvs[0]).SerializeToString())
            await _tell_proclamations(client, found.kvs[0].key, revision + 1, call)
        else:
            await _wait_for_entry(client, prefix, revision + 1)


async def _tell_proclamations(client: LocalClient, key: bytes, revision: int, call: StreamCall) -> None:
    """Wait until the leader's key is deleted, or the history was compacted and must be read again."""
    try:
        async with client.watch(key, start_revision=revision) as watch:
            async for batch in watch:
                for event in batch.events:
                    if event.type == EventType.DELETE:
                        return
                    await call.write(_leader_response(batch.header, event.kv).SerializeToString())
    except Compacted:
        return


async def _wait_for_entry(client: LocalClient, prefix: bytes, revision: int) -> None:
    try:
        async with client.watch(prefix, prefix_end(prefix), start_revision=revision) as watch:
            async for batch in watch:
                if any(event.type == EventType.PUT for event in batch.events):
                    return
    except Compacted:
        return
