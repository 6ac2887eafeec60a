"""Failures between a client and a coordination store. The errors that a store answers with are in mvcc/errors.py.

StoreError (mvcc/errors.py)   the store answered with an error, nothing was changed
├── AuthenticationFailed          the user or the password is wrong, or missing
└── PermissionDenied              the user lacks the permission
Unavailable                   no endpoint answered in time, nothing was changed
└── MemberBehind                  only members answered that lag behind a revision this client has seen
SlowConsumer                  a watch was not read fast enough: watch again from `resume_revision`
ClientClosed                  the client was closed
└── ForkedClient                  the process was forked after the client was opened
"""

from __future__ import annotations

from leasehold.base.errors import CallerError, Unavailable
from leasehold.mvcc.errors import Code, StoreError


class AuthenticationFailed(StoreError, CallerError):
    """The user or the password is wrong, or the store requires a user and none was given."""

    code = Code.INVALID_ARGUMENT
    message = "etcdserver: authentication failed, invalid user ID or password"


class PermissionDenied(StoreError, CallerError):
    """The user lacks the permission."""

    code = Code.PERMISSION_DENIED
    message = "etcdserver: permission denied"


class MemberBehind(Unavailable):
    """Every member that answered is behind a revision that this client has already seen."""


class SlowConsumer(CallerError):
    """The bounded queue of a watch is full. Everything that fitted was delivered.

    Nothing is lost yet: watch again from `resume_revision`, or list again.
    """

    def __init__(self, resume_revision: int) -> None:
        self.resume_revision = resume_revision
        super().__init__(
            f"the watch was not read fast enough and was closed: read faster, or watch again from {resume_revision}"
        )


class ClientClosed(CallerError):
    """The client was closed: open a new one."""

    def __init__(self, message: str = "the client is closed: open a new one with connect()") -> None:
        super().__init__(message)


class ForkedClient(ClientClosed):
    """The process was forked after the client was opened; its connections belong to the parent."""

    def __init__(self, message: str = "the client was opened before a fork: open one in the child instead") -> None:
        super().__init__(message)
