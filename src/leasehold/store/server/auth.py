"""The Auth service of an etcd with authentication disabled, without users and roles."""

from __future__ import annotations

from collections.abc import Callable

from leasehold.etcd.pb import rpc_pb2
from leasehold.mvcc.errors import Code, StoreError
from leasehold.store.engine import Engine
from leasehold.store.server import convert
from leasehold.store.server.dispatch import Methods, direct, run
from leasehold.store.server.http2.streams import Message

_NOT_ENABLED = "etcdserver: authentication is not enabled"
_NO_ROOT = "etcdserver: root user does not exist"
_NO_USER = "etcdserver: user name not found"
_NO_ROLE = "etcdserver: role name not found"
_NO_USERS_HERE = "leasehold: this store has no users; guard its port with TLS client certificates"


def auth_service(engine: Engine) -> Methods:
    """Method -> handler."""

    def header() -> Message:
        return convert.header(run(engine, lambda store, _now: store.header()))

    def refusing(message: str) -> Callable[[Message], Message]:
        def refuse(_m: Message) -> Message:
            raise StoreError(message, Code.FAILED_PRECONDITION)

        return refuse

    def answering(response: type[Message]) -> Callable[[Message], Message]:
        def answer(_m: Message) -> Message:
            return response(header=header())

        return answer

    def status(_m: Message) -> Message:
        return rpc_pb2.AuthStatusResponse(header=header(), enabled=False, authRevision=1)

    return {
        "AuthEnable": direct(engine, rpc_pb2.AuthEnableRequest, refusing(_NO_ROOT)),
        "AuthDisable": direct(engine, rpc_pb2.AuthDisableRequest, answering(rpc_pb2.AuthDisableResponse)),
        "AuthStatus": direct(engine, rpc_pb2.AuthStatusRequest, status),
        "Authenticate": direct(engine, rpc_pb2.AuthenticateRequest, refusing(_NOT_ENABLED)),
        "UserAdd": direct(engine, rpc_pb2.AuthUserAddRequest, refusing(_NO_USERS_HERE)),
        "UserGet": direct(engine, rpc_pb2.AuthUserGetRequest, refusing(_NO_USER)),
        "UserList": direct(engine, rpc_pb2.AuthUserListRequest, answering(rpc_pb2.AuthUserListResponse)),
        "UserDelete": direct(engine, rpc_pb2.AuthUserDeleteRequest, refusing(_NO_USER)),
        "UserChangePassword": direct(engine, rpc_pb2.AuthUserChangePasswordRequest, refusing(_NO_USER)),
        "UserGrantRole": direct(engine, rpc_pb2.AuthUserGrantRoleRequest, refusing(_NO_USER)),
        "UserRevokeRole": direct(engine, rpc_pb2.AuthUserRevokeRoleRequest, refusing(_NO_USER)),
        "RoleAdd": direct(engine, rpc_pb2.AuthRoleAddRequest, refusing(_NO_USERS_HERE)),
        "RoleGet": direct(engine, rpc_pb2.AuthRoleGetRequest, refusing(_NO_ROLE)),
        "RoleList": direct(engine, rpc_pb2.AuthRoleListRequest, answering(rpc_pb2.AuthRoleListResponse)),
        "RoleDelete": direct(engine, rpc_pb2.AuthRoleDeleteRequest, refusing(_NO_ROLE)),
        "RoleGrantPermission": direct(engine, rpc_pb2.AuthRoleGrantPermissionRequest, refusing(_NO_ROLE)),
        "RoleRevokePermission": direct(engine, rpc_pb2.AuthRoleRevokePermissionRequest, refusing(_NO_ROLE)),
    }
