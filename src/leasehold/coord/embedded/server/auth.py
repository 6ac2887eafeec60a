"""The Auth service, as an etcd answers whose authentication is disabled and that has no users and roles."""

from __future__ import annotations

from leasehold.coord.embedded.engine import Engine
from leasehold.coord.embedded.server import convert
from leasehold.coord.embedded.server.calls import Context, Message, Methods, Unary, run, unary
from leasehold.coord.etcd.pb import rpc_pb2
from leasehold.mvcc.errors import Code, StoreError

_NOT_ENABLED = "etcdserver: authentication is not enabled"
_NO_ROOT = "etcdserver: root user does not exist"
_NO_USER = "etcdserver: user name not found"
_NO_ROLE = "etcdserver: role name not found"
_NO_USERS_HERE = "leasehold: this store has no users; guard its port with TLS client certificates"


def auth_service(engine: Engine) -> Methods:
    """Method -> handler."""

    def header() -> Message:
        return convert.header(run(engine, lambda store, _now: store.header()))

    def refusing(message: str) -> Unary:
        async def refuse(_m: Message, _context: Context) -> Message:
            raise StoreError(message, Code.FAILED_PRECONDITION)

        return refuse

    def answering(response: type[Message]) -> Unary:
        async def answer(_m: Message, _context: Context) -> Message:
            return response(header=header())

        return answer

    async def status(_m: Message, _context: Context) -> Message:
        return rpc_pb2.AuthStatusResponse(header=header(), enabled=False, authRevision=1)

    return {
        "AuthEnable": unary(rpc_pb2.AuthEnableRequest, refusing(_NO_ROOT)),
        "AuthDisable": unary(rpc_pb2.AuthDisableRequest, answering(rpc_pb2.AuthDisableResponse)),
        "AuthStatus": unary(rpc_pb2.AuthStatusRequest, status),
        "Authenticate": unary(rpc_pb2.AuthenticateRequest, refusing(_NOT_ENABLED)),
        "UserAdd": unary(rpc_pb2.AuthUserAddRequest, refusing(_NO_USERS_HERE)),
        "UserGet": unary(rpc_pb2.AuthUserGetRequest, refusing(_NO_USER)),
        "UserList": unary(rpc_pb2.AuthUserListRequest, answering(rpc_pb2.AuthUserListResponse)),
        "UserDelete": unary(rpc_pb2.AuthUserDeleteRequest, refusing(_NO_USER)),
        "UserChangePassword": unary(rpc_pb2.AuthUserChangePasswordRequest, refusing(_NO_USER)),
        "UserGrantRole": unary(rpc_pb2.AuthUserGrantRoleRequest, refusing(_NO_USER)),
        "UserRevokeRole": unary(rpc_pb2.AuthUserRevokeRoleRequest, refusing(_NO_USER)),
        "RoleAdd": unary(rpc_pb2.AuthRoleAddRequest, refusing(_NO_USERS_HERE)),
        "RoleGet": unary(rpc_pb2.AuthRoleGetRequest, refusing(_NO_ROLE)),
        "RoleList": unary(rpc_pb2.AuthRoleListRequest, answering(rpc_pb2.AuthRoleListResponse)),
        "RoleDelete": unary(rpc_pb2.AuthRoleDeleteRequest, refusing(_NO_ROLE)),
        "RoleGrantPermission": unary(rpc_pb2.AuthRoleGrantPermissionRequest, refusing(_NO_ROLE)),
        "RoleRevokePermission": unary(rpc_pb2.AuthRoleRevokePermissionRequest, refusing(_NO_ROLE)),
    }
