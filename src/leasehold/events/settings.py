"""Settings of the event stream."""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.base.settings import count, flag, size, text


@dataclass(frozen=True)
class EventSettings:
    """Section `[events]`. Needs the extra `leasehold[events]`."""

    events_bind: str = text(
        "", help="HOST:PORT to publish events about objects on, for routers, in Mooncake's format; empty: none"
    )
    events_requests: str = text(
        "", help="HOST:PORT where subscribers request missed events and objects (default: the port after `events_bind`)"
    )
    events_backend_id: str = text("leasehold", help="name of this pool in each event")
    events_legacy: bool = flag(True, help="whether events also have the field names of vLLM and SGLang")
    events_object_key: bool = flag(True, help="whether events name the object's key; our own subscriber needs it")
    events_queue: int = count(
        65_536, low=1, high=10_000_000, help="number of events kept until durable; with more, subscribers must reload"
    )
    events_buffer_messages: int = count(
        10_000, low=1, high=1_000_000, help="number of messages from which subscribers resume"
    )
    events_buffer_bytes: int = size("64MiB", low="64KiB", high="16GiB", help="size of these messages")
    events_curve_key: str = text(
        "", help="file with this node's CURVE secret key; subscribers must know its public key"
    )
    events_curve_clients: str = text(
        "", help="directory with the CURVE public keys of subscribers (*.key); empty: every subscriber"
    )
