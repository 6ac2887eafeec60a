"""A plugin for aiocache's acceptance tests: the cache that they call "memory" is ours."""

from __future__ import annotations

import os
from typing import Any

import aiocache

from leasehold.contrib.aiocache import LeaseholdCache


class SuiteCache(LeaseholdCache):
    """Ours at the address of this run. The tests' own config file gives `asyncio_mode`."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(os.environ["SUITE_CACHE"], **kwargs)


aiocache.Cache.__new__.__defaults__ = (SuiteCache,)
