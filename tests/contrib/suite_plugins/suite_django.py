"""Django's `BaseCacheTests` against our back end. A plugin for pytest (it sets Django up), and the test module."""

from __future__ import annotations

import os
from typing import Any

import django
import pytest
from django.conf import settings
from django.test import TestCase, override_settings
from django.test.runner import DiscoverRunner
from django.test.utils import setup_test_environment

if not settings.configured:
    settings.configure(
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        INSTALLED_APPS=["cache"],
        SECRET_KEY="only for tests",
        USE_TZ=False,
        ROOT_URLCONF=None,
    )
    django.setup()

from cache.tests import BaseCacheTests, caches_setting_for_tests  # type: ignore[import-not-found]


def pytest_sessionstart(session: pytest.Session) -> None:
    setup_test_environment()
    DiscoverRunner(verbosity=0, interactive=False).setup_databases()


@override_settings(
    CACHES=caches_setting_for_tests(
        BACKEND="leasehold.contrib.django.LeaseholdCache",
        LOCATION=os.environ.get("SUITE_CACHE", "127.0.0.1:7400"),
        exclude={"cull", "zero_cull"} if os.environ.get("SUITE_NO_CULL") else None,
    )
)
class LeaseholdCacheTests(BaseCacheTests, TestCase):  # type: ignore[misc]
    """All tests that Django runs against each of its own back ends."""

    def tearDown(self) -> None:
        from django.core.cache import cache

        cast: Any = cache
        cast.clear()
