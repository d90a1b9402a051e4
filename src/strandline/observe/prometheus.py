"""The golden numbers for Prometheus: an endpoint on this machine, `http://127.0.0.1:PORT/metrics`."""

import logging
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Final

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from strandline.model.counts import COUNTED
from strandline.observe.history import JobState
from strandline.observe.metrics import BatchMetrics, fold

QUANTILES: Final = (0.5, 0.95, 0.99)
LOOPBACK: Final = "127.0.0.1"

_log: Final = logging.getLogger("strandline")


class Exporter:
    """Serves the numbers of one job. What is counted is counted since this run started."""

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

    def tell(self, job: str, metrics: BatchMetrics, state: JobState) -> None:
        with self._lock:
            self._job, self._last, self._state = job, metrics, state
            self._total = metrics if self._total is None else fold(self._total, metrics)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def collect(self) -> Iterator[Metric]:
        """What Prometheus asks for."""
        with self._lock:
            job, total, last, state = self._job, self._total, self._last, self._state
        if total is not None and last is not None:
            yield from _counters(job, total)
            yield from _gauges(job, last, state)


def _counters(job: str, total: BatchMetrics) -> Iterable[Metric]:
    elements = CounterMetricFamily(
        "strandline_elements", "Elements that came in, by what became of them.", labels=["job", "outcome"]
    )
    for name in COUNTED:
        elements.add_metric([job, name], getattr(total.counts, name))
    yield elements
    rows = CounterMetricFamily("strandline_rows", "Rows that went out, by timing.", labels=["job", "timing"])
    for timing, many in total.out.items():
        rows.add_metric([job, timing], many)
    yield rows
    spent = CounterMetricFamily(
        "strandline_stage_seconds", "Where the time of batches went, by stage.", labels=["job", "stage"]
    )
    for stage, seconds in total.stages.items():
        spent.add_metric([job, stage], seconds)
    yield spent
    letters = CounterMetricFamily("strandline_dead_letters", "Dead letters, by reason.", labels=["job", "reason"])
    for reason, many in total.reasons.items():
        letters.add_metric([job, reason], many)
    yield letters
    for name, said, value in (
        ("batches", "Batches in their sinks.", total.batches),
        ("retries", "How often a batch had to wait for a sink or a registry.", total.retries),
        ("retractions", "Rows that took others back.", total.retractions),
    ):
        yield _one(CounterMetricFamily, f"strandline_{name}", said, job, value)


def _gauges(job: str, last: BatchMetrics, state: JobState) -> Iterable[Metric]:
    for name, said, value in (
        ("lag_records", "Records in the sources that were not read yet.", last.lag_records),
        ("lag_seconds", "How long ago the oldest of them came.", last.lag_seconds),
        ("watermark_delay_seconds", "How far the watermark is behind the clock.", last.behind_seconds),
        ("batch_seconds", "How long the last batch took.", last.took),
        ("state_rows", "Windows that are kept, or strips that they share.", last.state_rows),
        ("state_bytes", "Bytes of state.", last.state_bytes),
        ("idle_partitions", "Partitions that no longer hold the watermark back.", len(last.idle)),
        ("failure_budget_spent", "The share of the failure budget that is spent.", last.budget),
        ("up", "Whether the job is at work.", int(state.is_alive)),
    ):
        if value is not None:
            yield _one(GaugeMetricFamily, f"strandline_{name}", said, job, value)
    latency = GaugeMetricFamily(
        "strandline_latency_seconds",
        "From event time to visible in the sink, in the last batch that said something.",
        labels=["job", "timing", "quantile"],
    )
    for timing in last.latency:
        for quantile in QUANTILES:
            latency.add_metric([job, timing, str(quantile)], last.latency_seconds(quantile, timing) or 0.0)
    yield latency


def _one(kind: Any, name: str, said: str, job: str, value: float) -> Metric:
    family: Metric = kind(name, said, labels=["job"])
    family.add_metric([job], value)  # type: ignore[attr-defined]
    return family
