"""Measures in the text format of Prometheus, and a port that serves nothing else."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from leasehold.admin.bounds import BoundedListener
from leasehold.base.errors import ResourceUnavailable
from leasehold.base.measures import Histogram, Measure
from leasehold.wire.finder import parse_address

_NANO: Final = 1e-9
_FINEST: Final = {"seconds": 16_000, "bytes": 0}  # buckets below this bound are added to the first one


class Measured(Collector):
    """A collector of measures that are taken at each scrape."""

    def __init__(self, measures: Callable[[], Iterable[Measure]]) -> None:
        self._measures = measures

    def collect(self) -> Iterator[Metric]:
        for measure in self._measures():
            yield family(measure)


def family(measure: Measure) -> Metric:
    """One measure as `prometheus_client` expects it."""
    if measure.kind in ("seconds", "bytes"):
        histogram = HistogramMetricFamily(measure.name, measure.help, labels=measure.labels)
        for labels, value in measure.values.items():
            assert isinstance(value, Histogram)
            scale, finest = _NANO if measure.kind == "seconds" else 1.0, _FINEST[measure.kind]
            bounds = [(f"{bound * scale:.6g}", below) for bound, below in value.buckets() if bound > finest]
            histogram.add_metric(labels, [*bounds, ("+Inf", value.count)], value.total * scale)
        return histogram
    plain = (CounterMetricFamily if measure.kind == "counter" else GaugeMetricFamily)(
        measure.name, measure.help, labels=measure.labels
    )
    for labels, value in measure.values.items():
        assert isinstance(value, int | float)
        plain.add_metric(labels, value)
    return plain


def render(*collectors: Collector) -> tuple[bytes, str]:
    """The response to a scrape: body and content type. Includes the metrics of this process (`process_*`)."""
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    ProcessCollector(registry=registry)
    return generate_latest(registry), CONTENT_TYPE_LATEST


class MetricsPort:
    """`/metrics` and `/health` of a process that has no admin port: the store, a storage host, a cache."""

    def __init__(self, address: str, measures: Callable[[], Iterable[Measure]]) -> None:
        self._address = address
        self._collector = Measured(measures)
        self._listener: BoundedListener | None = None
        self._runner: web.AppRunner | None = None

    async def start(self) -> str:
        """Listen and serve; returns the address. Raises `ResourceUnavailable` if it is unavailable."""
        host, port = parse_address(self._address)
        try:
            sock = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        except OSError as error:
            raise ResourceUnavailable(
                f"metrics = '{self._address}': cannot listen: {error.strerror}; choose another address"
            ) from None
        self._listener = BoundedListener(sock)
        app = web.Application(middlewares=[self._listener.middleware])
        app.add_routes([web.get("/metrics", self._metrics), web.get("/health", self._health)])
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.5)
        await self._runner.setup()
        assert self._runner.server is not None  # set by `setup`
        bound = sock.getsockname()
        self._listener.open(self._runner.server)
        return f"{host}:{bound[1]}"

    async def close(self) -> None:
        if self._listener is not None and self._runner is not None:
            await self._listener.close()
            await self._runner.cleanup()

    async def _metrics(self, _: web.Request) -> web.Response:
        body, content_type = render(self._collector)
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _health(self, _: web.Request) -> web.Response:
        return web.json_response({"ok": True})
