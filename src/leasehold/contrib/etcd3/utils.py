"""Small functions that programs import from python-etcd3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from leasehold.mvcc.model import prefix_end

if TYPE_CHECKING:
    from leasehold.contrib.etcd3.events import Event
    from leasehold.contrib.etcd3.watch import WatchResponse


def increment_last_byte(byte_string: bytes) -> bytes:
    """The end of the range of all keys with this prefix. (python-etcd3 fails on one that ends with 0xff.)"""
    return prefix_end(byte_string)


def to_bytes(maybe_bytestring: bytes | str) -> bytes:
    """Text as UTF-8; bytes unchanged."""
    return maybe_bytestring if isinstance(maybe_bytestring, bytes) else maybe_bytestring.encode()


def lease_to_id(lease: object) -> int:
    """The id of a `Lease`, or the number itself; 0 for None."""
    found: Any = getattr(lease, "id", lease)
    return 0 if found is None else int(found)


def response_to_event_iterator(responses: Iterator[WatchResponse]) -> Iterator[Event]:
    """The events of all responses, one after the other."""
    for response in responses:
        yield from response.events
