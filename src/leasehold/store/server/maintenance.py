"""The Maintenance service."""

from __future__ import annotations

import asyncio

from leasehold.etcd.pb import rpc_pb2
from leasehold.mvcc.alarms import ALARMS_MAX, Alarm, AlarmKind
from leasehold.mvcc.errors import BadRequest, Code, StoreError
from leasehold.mvcc.hashing import hash_of, hashed_versions
from leasehold.mvcc.store import Store
from leasehold.store.disk import Identity, export_chunks
from leasehold.store.engine import Engine
from leasehold.store.server import convert
from leasehold.store.server.dispatch import Methods, direct, run
from leasehold.store.server.http2.streams import Handler, Message, StreamCall, unary
from leasehold.store.status import ETCD_VERSION, active_alarms, status_of

_ALARM_KINDS = tuple(AlarmKind)


def maintenance_service(engine: Engine) -> Methods:
    """Method -> handler."""
    answers = _Answers(engine)
    return {
        "Alarm": direct(engine, rpc_pb2.AlarmRequest, answers.alarm),
        "Status": direct(engine, rpc_pb2.StatusRequest, answers.status),
        "Defragment": direct(engine, rpc_pb2.DefragmentRequest, answers.defragment),
        "Hash": unary(rpc_pb2.HashRequest, answers.hash),
        "HashKV": unary(rpc_pb2.HashKVRequest, answers.hash_kv),
        "Snapshot": Handler(stream=answers.snapshot),
        "MoveLeader": direct(engine, rpc_pb2.MoveLeaderRequest, answers.move_leader),
        "Downgrade": direct(engine, rpc_pb2.DowngradeRequest, answers.downgrade),
    }


class _Answers:
    """One method per call."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def alarm(self, m: Message) -> Message:
        if not 0 <= m.alarm < len(_ALARM_KINDS):
            raise BadRequest(f"leasehold: there is no alarm {m.alarm}")
        found = run(self._engine, lambda store, _now: self._alarm(store, m))
        header = convert.header(run(self._engine, lambda store, _now: store.header()))
        alarms = [rpc_pb2.AlarmMember(memberID=alarm.member_id, alarm=alarm.kind.name) for alarm in found]
        return rpc_pb2.AlarmResponse(header=header, alarms=alarms)

    def _alarm(self, store: Store, m: Message) -> list[Alarm]:
        """Run one request. Returns the alarms to answer with."""
        kind = _ALARM_KINDS[m.alarm]
        if m.action == rpc_pb2.AlarmRequest.GET:
            return [alarm for alarm in active_alarms(store) if kind in (AlarmKind.NONE, alarm.kind)]
        alarm = Alarm(m.memberID, kind)
        active = m.action == rpc_pb2.AlarmRequest.ACTIVATE
        if kind is AlarmKind.NONE or (alarm in store.alarms) == active:
            return [alarm] if active and kind is not AlarmKind.NONE else []
        if active and len(store.alarms) >= ALARMS_MAX:
            raise StoreError("leasehold: too many alarms are active", Code.RESOURCE_EXHAUSTED)
        store.switch_alarm(alarm, active)
        return [alarm]

    def status(self, _m: Message) -> Message:
        status = run(self._engine, lambda _store, _now: status_of(self._engine))
        return rpc_pb2.StatusResponse(
            header=convert.header(status.header),
            version=status.version,
            dbSize=status.db_size,
            leader=status.leader,
            raftIndex=status.raft_index,
            raftTerm=status.raft_term,
            raftAppliedIndex=status.raft_index,
            errors=status.errors,
            dbSizeInUse=status.db_size_in_use,
        )

    def defragment(self, _m: Message) -> Message:
        # Nothing to do: log rotation rewrites the files.
        return rpc_pb2.DefragmentResponse()

    async def hash(self, _m: Message) -> Message:
        header, _, versions = run(self._engine, lambda store, _now: (store.header(), 0, hashed_versions(store.keys, 0)))
        value = await asyncio.to_thread(hash_of, versions)
        await self._engine.settled()
        return rpc_pb2.HashResponse(header=convert.header(header), hash=value)

    async def hash_kv(self, m: Message) -> Message:
        header, compacted, versions = run(
            self._engine,
            lambda store, _now: (store.header(), store.compact_revision, hashed_versions(store.keys, m.revision)),
        )
        value = await asyncio.to_thread(hash_of, versions)
        await self._engine.settled()
        return rpc_pb2.HashKVResponse(
            header=convert.header(header),
            hash=value,
            compact_revision=compacted,
            hash_revision=m.revision or header.revision,
        )

    async def snapshot(self, call: StreamCall) -> None:
        engine = self._engine
        store = engine.store
        with engine.lock:
            records = store.dump(engine.enter())
            header = convert.header(store.header())
        await engine.settled()  # after the dump: a copy must not show state that a crash could undo
        for chunk in export_chunks(Identity(store.cluster_id, store.member_id), records):
            part = rpc_pb2.SnapshotResponse(header=header, blob=chunk, version=ETCD_VERSION)
            await call.write(part.SerializeToString())

    def move_leader(self, m: Message) -> Message:
        if m.targetID == self._engine.store.member_id:
            return rpc_pb2.MoveLeaderResponse()
        raise StoreError("etcdserver: bad leader transferee", Code.FAILED_PRECONDITION)

    def downgrade(self, _m: Message) -> Message:
        raise StoreError("leasehold: a store of one member has no cluster version to lower", Code.FAILED_PRECONDITION)
