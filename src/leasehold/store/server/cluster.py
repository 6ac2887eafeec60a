"""The Cluster service of a cluster with one member."""

from __future__ import annotations

from leasehold.etcd.pb import rpc_pb2
from leasehold.mvcc.errors import Code, StoreError
from leasehold.store.engine import Engine
from leasehold.store.server import convert
from leasehold.store.server.dispatch import Methods, direct, run
from leasehold.store.server.http2.streams import Message

_ONE_MEMBER = "leasehold: this store has one member, on one machine; for more, move to an etcd cluster"


def cluster_service(engine: Engine, client_url: str) -> Methods:
    """Method -> handler."""

    def member_list(_m: Message) -> Message:
        header = run(engine, lambda store, _now: store.header())
        # Clients expect peer URLs. There is no port for peers, so the member has its only URL in both lists.
        member = rpc_pb2.Member(ID=header.member_id, name="leasehold", clientURLs=[client_url], peerURLs=[client_url])
        answered = convert.header(header)
        answered.revision = 0  # etcd's own member list does not report the revision
        return rpc_pb2.MemberListResponse(header=answered, members=[member])

    def refuse(_m: Message) -> Message:
        raise StoreError(_ONE_MEMBER, Code.FAILED_PRECONDITION)

    return {
        "MemberList": direct(engine, rpc_pb2.MemberListRequest, member_list),
        "MemberAdd": direct(engine, rpc_pb2.MemberAddRequest, refuse),
        "MemberRemove": direct(engine, rpc_pb2.MemberRemoveRequest, refuse),
        "MemberUpdate": direct(engine, rpc_pb2.MemberUpdateRequest, refuse),
        "MemberPromote": direct(engine, rpc_pb2.MemberPromoteRequest, refuse),
    }
