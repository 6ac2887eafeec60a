"""Find out whether a storage host serves clients, without changing a byte of it."""

from __future__ import annotations

from leasehold.pool.errors import TransferFailed
from leasehold.pool.transfer import Transfer
from leasehold.runtime.tls import Tls
from leasehold.wire.messages import BufferDescriptor


async def probe_host(endpoint: str, base: int, capability: bytes, tls: Tls | None, timeout_s: float) -> str:
    """Why a client could not transfer bytes there; "" if it could. It reads nothing: a request for 0 bytes.

    With `tls` the host may still be without it, as its own settings decide.
    """
    problem = ""
    for files in (None,) if tls is None else (tls, None):
        transfer = Transfer(connections_max=1, timeout_ms=int(timeout_s * 1_000), tls=files)
        try:
            await transfer.read(BufferDescriptor(0, base, "", endpoint), capability)
        except TransferFailed as error:
            problem = problem or str(error)
        else:
            return ""
        finally:
            transfer.close()
    return problem
