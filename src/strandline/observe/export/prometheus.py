"""Serve the golden metrics to Prometheus on this machine: `http://127.0.0.1:PORT/metrics`."""

import threading
from collections.abc import Iterator
from typing import Any, Final

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from strandline.observe.export.signals import Signal, counters, gauges
from strandline.observe.metrics.history import JobState
from strandline.observe.metrics.metrics import BatchMetrics, fold
from strandline.redaction import logger

LOOPBACK: Final = "127.0.0.1"

_log: Final = logger("strandline")


class Exporter:
    """Serves the numbers of one job. Counters start at zero with each run."""

    def __init__(self, port: int, host: str = LOOPBACK) -> None:
        self._lock = threading.Lock()
        self._job = ""
        self._total: BatchMetrics | None = None
        self._last: BatchMetrics | None = None
        self._state = JobState.STARTING
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        server, self._thread = start_http_server(port, addr=host, registry=registry)
        self._server: Any = server
        self.port = int(server.server_port)
        _log.info("metrics are at http://%s:%s/metrics", host, self.port)

    def export(self, job: str, metrics: BatchMetrics, state: JobState) -> None:
        with self._lock:
            self._job, self._last, self._state = job, metrics, state
            self._total = metrics if self._total is None else fold(self._total, metrics)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics for a scrape."""
        with self._lock:
            job, total, last, state = self._job, self._total, self._last, self._state
        if total is not None and last is not None:
            yield from (_family(CounterMetricFamily, each, job) for each in counters(total))
            yield from (_family(GaugeMetricFamily, each, job) for each in gauges(last, state))


def _family(kind: type[CounterMetricFamily | GaugeMetricFamily], signal: Signal, job: str) -> Metric:
    family = kind(f"strandline_{signal.name}", signal.description, labels=["job", *signal.labels])
    for labels, value in signal.values.items():
        family.add_metric([job, *labels], value)
    return family
