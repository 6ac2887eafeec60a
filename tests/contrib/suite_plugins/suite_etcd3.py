"""A plugin for the tests of python-etcd3: `import etcd3` gives them our adapter, at the server of this run."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from leasehold.contrib import etcd3

for _name in (
    "client",
    "events",
    "exceptions",
    "leases",
    "locks",
    "members",
    "transactions",
    "utils",
    "watch",
    "etcdrpc",
):
    sys.modules[f"etcd3.{_name}"] = importlib.import_module(f"leasehold.contrib.etcd3.{_name}")
sys.modules["etcd3"] = etcd3
# The tests import this name; it belongs to gRPC, which our client does not use. Its one test fails.
setattr(sys.modules["etcd3.client"], "EtcdTokenCallCredentials", None)  # noqa: B010 - not an attribute of the module

# Some tests use the default address: give them the server of this run.
_host, _port = os.environ["PYTHON_ETCD_HTTP_URL"].removeprefix("http://").split(":")
_client: Any = functools.partial(etcd3.client, host=_host, port=int(_port))
setattr(etcd3, "client", _client)  # noqa: B010 - replaces a class by a function


@contextlib.contextmanager
def _out_quorum() -> Iterator[None]:
    """Freeze the other members. The suite finds them by the name that its own launcher gives them."""
    others = [int(pid) for pid in os.environ["SUITE_OTHER_MEMBERS"].split()]
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in others:
            os.kill(pid, signal.SIGCONT)


# The suite's own profile inherits from the loaded one. Each example starts etcdctl, so three must do.
settings.register_profile(
    "suite", max_examples=3, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
settings.load_profile("suite")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Use the freezing above in place of the suite's own."""
    for item in session.items:
        module = getattr(item, "module", None)
        if module is not None and hasattr(module, "_out_quorum"):
            module._out_quorum = _out_quorum
