"""The pool for synchronous code: the same calls, each run on a background loop and waited for."""

from __future__ import annotations

from leasehold.pool.pool import Pool
from leasehold.runtime.closing import Closing
from leasehold.runtime.portal import Portal, Through
from leasehold.runtime.tls import Tls
from leasehold.wire.client import Key
from leasehold.wire.finder import Finder
from leasehold.wire.messages import DEFAULT_TENANT


class SyncPool(Closing):
    """See `Pool`: every method under the same name. May be used from many threads."""

    def __init__(
        self,
        master: str | Finder,
        *,
        tenant: Key = DEFAULT_TENANT,
        timeout_ms: int = 10_000,
        tls: Tls | None = None,
        portal: Portal | None = None,
    ) -> None:
        self.portal = portal or Portal.shared()

        async def make() -> Pool:  # on its own loop
            return Pool(master, tenant=tenant, timeout_ms=timeout_ms, tls=tls)

        self.pool = self.portal.call(make)

    @property
    def core(self) -> Pool:
        return self.pool

    put = Through(Pool.put)
    put_many = Through(Pool.put_many)
    get = Through(Pool.get)
    get_many = Through(Pool.get_many)
    exists = Through(Pool.exists)
    remove = Through(Pool.remove)

    def close(self) -> None:
        async def close() -> None:
            self.pool.close()

        self.portal.call(close)
