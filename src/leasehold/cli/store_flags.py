"""Flags that select the coordination store, for commands that correspond to one of `etcdctl`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import click

from leasehold.base.errors import Unavailable
from leasehold.coord.api import Coord
from leasehold.coord.connect import connect
from leasehold.etcd.diagnosis import unreachable

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT_ENDPOINTS = "127.0.0.1:2379"


def store_options(command: F) -> F:
    """Add `--coord URL` and, as in `etcdctl`, `--endpoints`."""
    coord = click.option(
        "--coord",
        "coord_url",
        envvar="LEASEHOLD_COORD",
        help="URL of the coordination store, such as etcd://127.0.0.1:2379 (LEASEHOLD_COORD)",
    )
    endpoints = click.option(
        "--endpoints",
        envvar="ETCDCTL_ENDPOINTS",
        default=DEFAULT_ENDPOINTS,
        show_default=True,
        help="etcd endpoints, separated by commas, as for etcdctl (ETCDCTL_ENDPOINTS)",
    )
    return coord(endpoints(command))


def waiting_options(ttl_help: str) -> Callable[[F], F]:
    """Add `--ttl`, the TTL of the lease, and `--timeout`, the longest wait."""

    def decorate(command: F) -> F:
        ttl = click.option("--ttl", "ttl_s", default=10, show_default=True, type=click.IntRange(1), help=ttl_help)
        timeout_help = "seconds to wait before giving up (default: no limit)"
        timeout = click.option("--timeout", "timeout_s", type=click.FloatRange(min=0), help=timeout_help)
        return ttl(timeout(command))

    return decorate


def shared(url: str, flag: str) -> str:
    """Returns `url` if other processes can use that store too; otherwise raises `UsageError`."""
    if url.startswith("memory:"):
        raise click.UsageError(
            f"{flag} '{url}': a store in memory exists only within this process, so no other process could use it: "
            "give a shared one, such as etcd://127.0.0.1:2379"
        )
    return url


def store_url(coord_url: str | None, endpoints: str) -> str:
    """The URL from the two flags; endpoints may begin with `http://` or `https://`, as for etcdctl."""
    if coord_url:
        return shared(coord_url, "--coord")
    parts = [part.strip() for part in endpoints.split(",") if part.strip()]
    scheme = "etcds" if any(part.startswith("https://") for part in parts) else "etcd"
    return f"{scheme}://{','.join(part.rpartition('//')[2].rstrip('/') for part in parts)}"


class StoreAway(Unavailable):
    """The store does not answer; the message contains a diagnosis."""


async def store_away(url: str, flag: str = "--coord URL") -> StoreAway:
    """The error for a call without an answer: a diagnosis, and what to do next."""
    return StoreAway(f"{await unreachable(url)}: check that it runs, or name another store with {flag}")


@asynccontextmanager
async def reach(url: str, flag: str = "--coord URL") -> AsyncIterator[Coord]:
    """A client for the store at `url`; raises `StoreAway` if it does not answer."""
    try:
        async with await connect(url) as coord:
            yield coord
    except StoreAway:
        raise
    except Unavailable:
        raise await store_away(url, flag) from None
