"""One live stream from each node, read in a thread of its own. When a node dies, the others continue."""

from __future__ import annotations

import http.client
import threading
import urllib.error
from collections.abc import Iterator
from typing import Final

import click
import msgspec

from leasehold.admin.live import LiveCluster, LiveNode
from leasehold.admin.samples import Sample
from leasehold.base.decoding import UNDECODABLE
from leasehold.base.errors import LeaseholdError
from leasehold.cli.operate import error_text, opened
from leasehold.cli.top.model import SILENT_MS, Model
from leasehold.runtime.clock import BootClock

RETRY_S: Final = 1.0
STREAMS_MAX: Final = 16  # a cluster has fewer nodes
_EVENT, _DATA = b"event: ", b"data: "


class Streams:
    """Connects to the given addresses, and to every node that the cluster names. `lock` guards the model."""

    def __init__(self, model: Model, context: click.Context) -> None:
        self.lock = threading.Lock()
        self._model = model
        self._context = context  # its credentials are sent to the nodes
        self._clock = BootClock()
        self._names: dict[str, str] = {}  # by address, once known
        self._errors: dict[str, str] = {}
        self._opened: set[str] = set()
        self._stopped = threading.Event()

    def open(self, address: str) -> None:
        """Read the stream of this address until `stop`."""
        if address not in self._opened and len(self._opened) < STREAMS_MAX:
            self._opened.add(address)
            threading.Thread(target=self._read, args=(address,), daemon=True).start()

    def stop(self) -> None:
        """The threads end with their next frame; they do not keep the process alive."""
        self._stopped.set()

    @property
    def errors(self) -> dict[str, str]:
        """By address: why its stream is not open now."""
        return dict(self._errors)

    def _read(self, address: str) -> None:
        with self._context.scope(cleanup=False):
            while not self._stopped.is_set():
                try:
                    for event, data in _events(address):
                        if self._stopped.is_set():
                            return
                        with self.lock:
                            self._handle(address, event, data)
                    self._errors[address] = "the stream ended"
                except urllib.error.HTTPError as error:
                    self._errors[address] = error_text(error)
                except (OSError, http.client.HTTPException, LeaseholdError) as error:
                    self._errors[address] = str(getattr(error, "reason", error))
                except UNDECODABLE:
                    self._errors[address] = "it is not a node of this release"
                with self.lock:
                    self._model.node_lost(self._names.get(address, ""))
                self._stopped.wait(RETRY_S)

    def _handle(self, address: str, event: str, data: bytes) -> None:
        self._errors.pop(address, None)
        if event == "node":
            frame = msgspec.json.decode(data, type=LiveNode)
            self._names[address] = frame.status.name
            self._model.node_reported(self._clock.now_ms(), frame)
        elif event == "samples" and address in self._names:
            self._model.samples_arrived(self._names[address], msgspec.json.decode(data, type=list[Sample]))
        elif event == "cluster":
            cluster = msgspec.json.decode(data, type=LiveCluster)
            self._model.cluster_reported(cluster)
            for peer in cluster.cluster.nodes if cluster.cluster else ():
                if peer.admin and peer.name not in self._names.values():
                    self.open(peer.admin)


def _events(address: str) -> Iterator[tuple[str, bytes]]:
    """Events of the stream, with their data. The samples of the past come after the first frame, which has the name."""
    past = b""
    event = ""
    with opened(address, "/api/live", timeout_s=SILENT_MS / 1000) as answer:
        for line in answer:
            if line.startswith(_EVENT):
                event = line[len(_EVENT) :].decode().strip()
            elif line.startswith(_DATA):
                data = line[len(_DATA) :]
                if event == "samples":
                    past = data
                    continue
                yield event, data
                if past and event == "node":
                    yield "samples", past
                    past = b""
