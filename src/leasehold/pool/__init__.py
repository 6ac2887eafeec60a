"""Memory lent over TCP by storage hosts, and put/get of real bytes in Python."""

from leasehold.pool.errors import BytesDamaged, LeaseExpired, TransferFailed
from leasehold.pool.pool import Pool
from leasehold.pool.sync import SyncPool

__all__ = ["BytesDamaged", "LeaseExpired", "Pool", "SyncPool", "TransferFailed"]
