"""The golden numbers for OpenTelemetry: what Prometheus would read, sent to a collector over OTLP on HTTP.

A thread of OpenTelemetry's own sends them, so that a collector that is away holds nothing up; what is counted meanwhile
is sent when it is back.
"""

import os
from importlib.util import find_spec
from typing import Any, Final
from urllib.parse import urlsplit

from strandline.errors import InvalidStep, SetupError
from strandline.observe.export.signals import Signal, counters, gauges
from strandline.observe.metrics.history import JobState
from strandline.observe.metrics.metrics import BatchMetrics

_PATH: Final = "/v1/metrics"
_EVERY: Final = "OTEL_METRIC_EXPORT_INTERVAL"
_USUALLY_MS: Final = 10_000
_WITHIN_SECONDS: Final = 5


def require_otlp(address: str) -> None:
    """Refuses what is no address of a collector, and a machine without the client."""
    if urlsplit(address).scheme not in ("http", "https") or not urlsplit(address).hostname:
        raise InvalidStep(
            f"{address!r} is no address of a collector", hint='write it like "http://localhost:4318"; it speaks HTTP'
        )
    if not _is_installed("opentelemetry.sdk") or not _is_installed("opentelemetry.exporter.otlp.proto.http"):
        raise SetupError("the client of OpenTelemetry is not installed", hint='pip install "strandline[otel]"')


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # one that it is a part of is not there either
        return False


class Telemetry:
    """Tells a collector; or readers of one's own."""

    def __init__(self, address: str = "", readers: tuple[Any, ...] = ()) -> None:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.resources import Resource

        resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", "strandline")})
        chosen = readers or (_sender(address),)
        # Ended by whoever closes it, and not when the interpreter goes, which is too late for a thread.
        self._provider = MeterProvider(metric_readers=chosen, resource=resource, shutdown_on_exit=False)
        self._meter = self._provider.get_meter("strandline")
        self._made: dict[str, Any] = {}

    def tell(self, job: str, metrics: BatchMetrics, state: JobState) -> None:
        for signal in counters(metrics):
            self._each(self._meter.create_counter, signal, job, "add")
        for signal in gauges(metrics, state):
            self._each(self._meter.create_gauge, signal, job, "set")

    def close(self) -> None:
        """Sends what was not sent yet, if someone listens."""
        self._provider.shutdown(timeout_millis=1000 * _WITHIN_SECONDS)

    def _each(self, make: Any, signal: Signal, job: str, act: str) -> None:
        if signal.name not in self._made:
            self._made[signal.name] = make(f"strandline.{signal.name}", unit=signal.unit, description=signal.said)
        for labels, value in signal.values.items():
            known = {"job": job, **dict(zip(signal.labels, labels, strict=True))}
            getattr(self._made[signal.name], act)(value, known)


def _sender(address: str) -> Any:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    whole = address if urlsplit(address).path.strip("/") else address.rstrip("/") + _PATH
    every = float(os.environ.get(_EVERY, _USUALLY_MS))
    return PeriodicExportingMetricReader(
        OTLPMetricExporter(endpoint=whole, timeout=_WITHIN_SECONDS), export_interval_millis=every
    )
