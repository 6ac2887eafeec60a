"""python-etcd3's lock with its mistakes corrected; both exclude each other, because the key is the same.

- `with lock` raises `LockTimeout` if it cannot acquire the lock. python-etcd3 enters the block without it.
- The lease is renewed while the lock is held. In python-etcd3 it expires after `ttl`, also under a running block.
- `with lock` raises `LockLost` at its end if the lease may have expired meanwhile; `check()` reports it at any time.
- `token` is a fencing token.
"""

from __future__ import annotations

import time
import uuid
from types import TracebackType
from typing import TYPE_CHECKING, Self

from leasehold.base.errors import NotHeld
from leasehold.concurrency import sync as blocking
from leasehold.contrib.etcd3.exceptions import Etcd3Exception, LockLost, LockTimeout, WatchTimedOut, translated
from leasehold.contrib.etcd3.leases import Lease, LeaseRefreshed

if TYPE_CHECKING:
    from leasehold.contrib.etcd3.client import Etcd3Client

DEFAULT_TIMEOUT_S = 10.0


class Lock:
    """A lock over all processes. One object belongs to one user at a time, as in python-etcd3."""

    lock_prefix = "/locks/"

    def __init__(self, name: str | bytes, ttl: int = 60, *, etcd_client: Etcd3Client) -> None:
        self.name = name.decode() if isinstance(name, bytes) else name
        self.ttl = ttl
        self.etcd_client = etcd_client
        self.key = self.lock_prefix + self.name
        self.lease: Lease | None = None
        self.uuid = uuid.uuid1().bytes
        self._session: blocking.Session | None = None
        self._token = 0

    def acquire(self, timeout: float | None = DEFAULT_TIMEOUT_S) -> bool:
        """Wait for the lock at most `timeout` seconds (None: without limit). Returns whether it was acquired."""
        if timeout is None and self.is_acquired():
            raise Etcd3Exception(
                f"the lock '{self.name}' is held through this object: it would wait for itself forever"
            )
        end_s = None if timeout is None else time.monotonic() + timeout
        transactions = self.etcd_client.transactions
        with translated():
            session = self.etcd_client.open_session(self.ttl)
        acquired = False
        try:
            while True:
                acquired, found = self.etcd_client.transaction(
                    compare=[transactions.create(self.key) == 0],
                    success=[transactions.put(self.key, self.uuid, lease=session.lease_id)],
                    failure=[transactions.get(self.key)],
                )
                if acquired:
                    self._hold(session, found[0].response_put.header.revision)
                    return True
                left_s = None if end_s is None else end_s - time.monotonic()
                if left_s is not None and left_s <= 0:
                    return False
                self._wait_for_release(found[0], left_s)
        finally:
            if not acquired:
                session.close()

    def _hold(self, session: blocking.Session, token: int) -> None:
        previous, self._session = self._session, session
        self._token = token
        self.lease = Lease(session.lease_id, session.ttl_s, self.etcd_client)
        if previous is not None:
            previous.close()  # of an earlier hold that was lost

    def _wait_for_release(self, found: list[tuple[bytes, object]], left_s: float | None) -> None:
        """Wait until the key that another client holds changes."""
        if not found:
            return
        revision: int = getattr(found[0][1], "mod_revision", 0)
        try:
            self.etcd_client.watch_once(self.key, timeout=left_s, start_revision=revision + 1)
        except WatchTimedOut:
            return

    def release(self) -> bool:
        """Release the lock. Returns False if it was not held any more."""
        transactions = self.etcd_client.transactions
        released, _ = self.etcd_client.transaction(
            compare=[transactions.value(self.key) == self.uuid], success=[transactions.delete(self.key)], failure=[]
        )
        self._end_session()
        return released

    def refresh(self) -> list[LeaseRefreshed]:
        """Renew the lease now. Not needed: it is renewed in the background."""
        if self.lease is None:
            raise ValueError("No lease associated with this lock - have you acquired the lock yet?")
        return self.lease.refresh()

    def is_acquired(self) -> bool:
        """Whether the store has this lock as held by this object. One round trip."""
        value, _ = self.etcd_client.get(self.key)
        return value == self.uuid

    def check(self) -> None:
        """Raise `LockLost` unless the lock is certainly held at this moment. Local: no round trip."""
        if self._session is None:
            raise LockLost(f"the lock '{self.name}' is not held")
        try:
            self._session.check()
        except NotHeld as error:
            raise LockLost(f"the lock '{self.name}' may have been lost: {error}") from error

    @property
    def token(self) -> int:
        """A fencing token: it grows with every acquisition. 0 while the lock is not held through this object."""
        return self._token

    def _end_session(self) -> None:
        session, self._session = self._session, None
        self.lease = None
        self._token = 0
        if session is not None:
            session.close()

    def __enter__(self) -> Self:
        if not self.acquire():
            raise LockTimeout(
                f"the lock '{self.name}' was not acquired within {DEFAULT_TIMEOUT_S:g} s: "
                "call acquire(timeout=None) to wait without limit"
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.check()
        finally:
            self.release()
