"""What can go wrong between a client and a coordination store, beside what the store itself refuses.

StoreError (mvcc/errors.py)   the store answered with an error, nothing was changed
├── AuthenticationFailed          the user or the password is wrong, or the store demands one
└── PermissionDenied              the user may not do that
Unavailable                   no endpoint could be asked in time, nothing was changed
└── MemberBehind                  only members that lag behind what this client has already seen
SlowConsumer                  a watch was not read fast enough: watch again from `resume_revision`
ClientClosed                  the client was closed
└── ForkedClient                  the process was forked after the client was opened
"""

from __future__ import annotations

from leasehold.base.errors import CallerError, Unavailable
from leasehold.mvcc.errors import Code, StoreError


class AuthenticationFailed(StoreError, CallerError):
    """The user or the password is wrong, or the store demands a user and none was given."""

    code = Code.INVALID_ARGUMENT
    message = "etcdserver: authentication failed, invalid user ID or password"


class PermissionDenied(StoreError, CallerError):
    """The user may not do that."""

    code = Code.PERMISSION_DENIED
    message = "etcdserver: permission denied"


class MemberBehind(Unavailable):
    """Every member asked is behind a revision that this client has already seen."""


class SlowConsumer(CallerError):
    """The reader of a watch has let its bounded queue run full; what fitted was delivered.

    Nothing is lost yet: watch again from `resume_revision`, or list anew.
    """

    def __init__(self, resume_revision: int) -> None:
        self.resume_revision = resume_revision
        super().__init__(
            f"the watch was not read fast enough and has ended: read faster, or watch again from {resume_revision}"
        )


class ClientClosed(CallerError):
    """The client was closed: open a new one."""

    def __init__(self, message: str = "the client is closed: open a new one with connect()") -> None:
        super().__init__(message)


class ForkedClient(ClientClosed):
    """The process was forked after the client was opened; its connections belong to the parent."""

    def __init__(self, message: str = "the client was opened before a fork: open one in the child instead") -> None:
        super().__init__(message)
