"""Flags that say which coordination store to use, for the commands that stand where `etcdctl` has one."""

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
    """Add `--coord URL` and, as `etcdctl` has it, `--endpoints`."""
    coord = click.option(
        "--coord", "coord_url", envvar="LEASEHOLD_COORD", help="store, such as etcd://127.0.0.1:2379 (LEASEHOLD_COORD)"
    )
    endpoints = click.option(
        "--endpoints",
        envvar="ETCDCTL_ENDPOINTS",
        default=DEFAULT_ENDPOINTS,
        show_default=True,
        help="etcd endpoints, with commas, as for etcdctl (ETCDCTL_ENDPOINTS)",
    )
    return coord(endpoints(command))


def waiting_options(ttl_help: str) -> Callable[[F], F]:
    """Add `--ttl`, for what is held by lease, and `--timeout`, for waiting until it is."""

    def decorate(command: F) -> F:
        ttl = click.option("--ttl", "ttl_s", default=10, show_default=True, type=click.IntRange(1), help=ttl_help)
        patience = "give up waiting after this many seconds"
        timeout = click.option("--timeout", "timeout_s", type=click.FloatRange(min=0), help=patience)
        return ttl(timeout(command))

    return decorate


def shared(url: str, flag: str) -> str:
    """`url`, if others can meet us there."""
    if url.startswith("memory:"):
        raise click.UsageError(
            f"{flag} {url}: that store is in this process alone, and nobody else could ever be met there: "
            "name one that others share, such as etcd://127.0.0.1:2379"
        )
    return url


def store_url(coord_url: str | None, endpoints: str) -> str:
    """The URL that the two flags name; endpoints may carry `http://` or `https://`, as etcdctl's may."""
    if coord_url:
        return shared(coord_url, "--coord")
    parts = [part.strip() for part in endpoints.split(",") if part.strip()]
    scheme = "etcds" if any(part.startswith("https://") for part in parts) else "etcd"
    return f"{scheme}://{','.join(part.rpartition('//')[2].rstrip('/') for part in parts)}"


class StoreAway(Unavailable):
    """The store that a flag named does not answer; the message says what is seen there."""


async def store_away(url: str, flag: str = "--coord URL") -> StoreAway:
    """The error for a call that found nobody: it says what is seen there, and what to do."""
    return StoreAway(f"{await unreachable(url)}: is it running? `{flag}` names another")


@asynccontextmanager
async def reach(url: str, flag: str = "--coord URL") -> AsyncIterator[Coord]:
    """A client for the store at `url`; `StoreAway` if it does not answer."""
    try:
        async with await connect(url) as coord:
            yield coord
    except StoreAway:
        raise
    except Unavailable:
        raise await store_away(url, flag) from None
