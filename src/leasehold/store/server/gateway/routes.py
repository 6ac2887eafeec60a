"""The paths of etcd's JSON gateway, and the gRPC methods that they stand for."""

from __future__ import annotations

from typing import Any

from google.protobuf.message_factory import GetMessageClass
from msgspec import Struct

from leasehold.etcd.pb import election_pb2, lock_pb2, rpc_pb2

_FILES = {"etcdserverpb": rpc_pb2, "v3lockpb": lock_pb2, "v3electionpb": election_pb2}

# Path below /v3/ -> method
_PATHS = {
    "kv/range": "etcdserverpb.KV/Range",
    "kv/put": "etcdserverpb.KV/Put",
    "kv/deleterange": "etcdserverpb.KV/DeleteRange",
    "kv/txn": "etcdserverpb.KV/Txn",
    "kv/compaction": "etcdserverpb.KV/Compact",
    "watch": "etcdserverpb.Watch/Watch",
    "lease/grant": "etcdserverpb.Lease/LeaseGrant",
    "lease/revoke": "etcdserverpb.Lease/LeaseRevoke",
    "kv/lease/revoke": "etcdserverpb.Lease/LeaseRevoke",
    "lease/keepalive": "etcdserverpb.Lease/LeaseKeepAlive",
    "lease/timetolive": "etcdserverpb.Lease/LeaseTimeToLive",
    "kv/lease/timetolive": "etcdserverpb.Lease/LeaseTimeToLive",
    "lease/leases": "etcdserverpb.Lease/LeaseLeases",
    "kv/lease/leases": "etcdserverpb.Lease/LeaseLeases",
    "cluster/member/add": "etcdserverpb.Cluster/MemberAdd",
    "cluster/member/remove": "etcdserverpb.Cluster/MemberRemove",
    "cluster/member/update": "etcdserverpb.Cluster/MemberUpdate",
    "cluster/member/list": "etcdserverpb.Cluster/MemberList",
    "cluster/member/promote": "etcdserverpb.Cluster/MemberPromote",
    "maintenance/alarm": "etcdserverpb.Maintenance/Alarm",
    "maintenance/status": "etcdserverpb.Maintenance/Status",
    "maintenance/defragment": "etcdserverpb.Maintenance/Defragment",
    "maintenance/hash": "etcdserverpb.Maintenance/Hash",
    "maintenance/hashkv": "etcdserverpb.Maintenance/HashKV",
    "maintenance/snapshot": "etcdserverpb.Maintenance/Snapshot",
    "maintenance/transfer-leadership": "etcdserverpb.Maintenance/MoveLeader",
    "maintenance/downgrade": "etcdserverpb.Maintenance/Downgrade",
    "auth/enable": "etcdserverpb.Auth/AuthEnable",
    "auth/disable": "etcdserverpb.Auth/AuthDisable",
    "auth/status": "etcdserverpb.Auth/AuthStatus",
    "auth/authenticate": "etcdserverpb.Auth/Authenticate",
    "auth/user/add": "etcdserverpb.Auth/UserAdd",
    "auth/user/get": "etcdserverpb.Auth/UserGet",
    "auth/user/list": "etcdserverpb.Auth/UserList",
    "auth/user/delete": "etcdserverpb.Auth/UserDelete",
    "auth/user/changepw": "etcdserverpb.Auth/UserChangePassword",
    "auth/user/grant": "etcdserverpb.Auth/UserGrantRole",
    "auth/user/revoke": "etcdserverpb.Auth/UserRevokeRole",
    "auth/role/add": "etcdserverpb.Auth/RoleAdd",
    "auth/role/get": "etcdserverpb.Auth/RoleGet",
    "auth/role/list": "etcdserverpb.Auth/RoleList",
    "auth/role/delete": "etcdserverpb.Auth/RoleDelete",
    "auth/role/grant": "etcdserverpb.Auth/RoleGrantPermission",
    "auth/role/revoke": "etcdserverpb.Auth/RoleRevokePermission",
    "lock/lock": "v3lockpb.Lock/Lock",
    "lock/unlock": "v3lockpb.Lock/Unlock",
    "election/campaign": "v3electionpb.Election/Campaign",
    "election/proclaim": "v3electionpb.Election/Proclaim",
    "election/leader": "v3electionpb.Election/Leader",
    "election/observe": "v3electionpb.Election/Observe",
    "election/resign": "v3electionpb.Election/Resign",
}


class Route(Struct, frozen=True):
    """`many_requests` and `many_answers`: whether the method is a stream of them."""

    method: bytes
    request: Any
    answer: Any
    many_requests: bool
    many_answers: bool


def _route(method: str) -> Route:
    service, _, name = method.partition("/")
    package, _, service = service.partition(".")
    described = _FILES[package].DESCRIPTOR.services_by_name[service].methods_by_name[name]
    return Route(
        f"/{method}".encode(),
        GetMessageClass(described.input_type),
        GetMessageClass(described.output_type),
        described.client_streaming,
        described.server_streaming,
    )


ROUTES: dict[str, Route] = {f"/v3/{path}": _route(method) for path, method in _PATHS.items()}
