"""Send the golden metrics to an OpenTelemetry collector over OTLP/HTTP, with the same metrics as for Prometheus.

A thread of the OpenTelemetry client sends them, so an unreachable collector blocks nothing; counters accumulated in the
meantime are sent when it is back.
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
    """Refuse an invalid collector address, or a missing client."""
    if urlsplit(address).scheme not in ("http", "https") or not urlsplit(address).hostname:
        raise InvalidStep(
            f"{address!r} is not a collector address", hint='use OTLP over HTTP, like "http://localhost:4318"'
        )
    if not _is_installed("opentelemetry.sdk") or not _is_installed("opentelemetry.exporter.otlp.proto.http"):
        raise SetupError("the OpenTelemetry client is not installed", hint='pip install "strandline[otel]"')


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # the parent package is missing too
        return False


class Telemetry:
    """Sends metrics to a collector, or to the given readers."""

    def __init__(self, address: str = "", readers: tuple[Any, ...] = ()) -> None:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.resources import Resource

        resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", "strandline")})
        chosen = readers or (_sender(address),)
        # `close` shuts the provider down. A handler at interpreter exit runs too late for threads.
        self._provider = MeterProvider(metric_readers=chosen, resource=resource, shutdown_on_exit=False)
        self._meter = self._provider.get_meter("strandline")
        self._made: dict[str, Any] = {}

    def export(self, job: str, metrics: BatchMetrics, state: JobState) -> None:
        for signal in counters(metrics):
            self._each(self._meter.create_counter, signal, job, "add")
        for signal in gauges(metrics, state):
            self._each(self._meter.create_gauge, signal, job, "set")

    def close(self) -> None:
        """Send metrics that are not sent yet, if the collector responds."""
        self._provider.shutdown(timeout_millis=1000 * _WITHIN_SECONDS)

    def _each(self, make: Any, signal: Signal, job: str, act: str) -> None:
        if signal.name not in self._made:
            self._made[signal.name] = make(
                f"strandline.{signal.name}", unit=signal.unit, description=signal.description
            )
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
