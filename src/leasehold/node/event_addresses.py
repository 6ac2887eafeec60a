"""The addresses and keys of the event stream, checked before a worker is started."""

from __future__ import annotations

from leasehold.base.errors import SettingError
from leasehold.events import sockets
from leasehold.events.settings import EventSettings
from leasehold.node.settings import split_address


def check_events(settings: EventSettings) -> None:
    """Raise `SettingError` if these settings cannot work on this machine."""
    if settings.events_bind:
        split_address(settings.events_bind, "events_bind")
        sockets.import_zmq()
        if settings.events_curve_key:
            sockets.read_key(settings.events_curve_key)
        elif settings.events_curve_clients:
            raise SettingError("events_curve_clients needs events_curve_key: the file with this node's secret key")


def requests_address(settings: EventSettings) -> str:
    """Where subscribers send requests."""
    host, port = split_address(settings.events_bind, "events_bind")
    return settings.events_requests or f"{host}:{port + 1}"
