"""A cache without stale reads: each cached value is under a lease, and a write calls back or waits for its holders.

The `Authority` has the values and decides; a `Client` keeps copies in its own memory. After Gray and Cheriton (1989).
"""

from leasehold.cache.authority import Authority
from leasehold.cache.client import Client, Statistics, Value
from leasehold.cache.errors import Busy, Conflict, Expired, NotServing, TokenRefused
from leasehold.cache.failover import run_for_term, run_in_office
from leasehold.cache.model import ABSENT, MODES, Version
from leasehold.cache.server import CacheServer
from leasehold.cache.settings import AuthoritySettings, ClientSettings
from leasehold.cache.stores.api import BackingStore, Kept, Opened
from leasehold.cache.stores.coord import CoordStore
from leasehold.cache.stores.hooks import HookStore
from leasehold.cache.stores.memory import MemoryStore
from leasehold.cache.stores.redis import RedisStore
from leasehold.cache.stores.sqlite import SqliteStore
from leasehold.cache.subscription import Change, Subscription
from leasehold.cache.sync import SyncClient

__all__ = [
    "ABSENT",
    "MODES",
    "Authority",
    "AuthoritySettings",
    "BackingStore",
    "Busy",
    "CacheServer",
    "Change",
    "Client",
    "ClientSettings",
    "Conflict",
    "CoordStore",
    "Expired",
    "HookStore",
    "Kept",
    "MemoryStore",
    "NotServing",
    "Opened",
    "RedisStore",
    "SqliteStore",
    "Statistics",
    "Subscription",
    "SyncClient",
    "TokenRefused",
    "Value",
    "Version",
    "run_for_term",
    "run_in_office",
]
