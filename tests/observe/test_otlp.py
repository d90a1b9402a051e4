"""OpenTelemetry gets the same numbers as Prometheus, over a real connection to a local collector."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from strandline.errors import InvalidStep, SetupError
from strandline.observe.export import otlp
from strandline.observe.export.otlp import Telemetry, require_otlp
from strandline.observe.metrics.history import JobState
from tests.observe.made import START, batch

Found = dict[tuple[str, ...], float]


@contextmanager
def collector(requests: list[tuple[str, bytes]]) -> Iterator[str]:
    """A collector that accepts everything, on a free local port."""

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            requests.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Log nothing."""

    server = HTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def read(body: bytes) -> Found:
    """The metrics in a request, by name and label values."""
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest  # noqa: PLC0415 - an extra

    result = ExportMetricsServiceRequest.FromString(body)
    found: Found = {}
    for metric in result.resource_metrics[0].scope_metrics[0].metrics:
        for point in [*metric.sum.data_points, *metric.gauge.data_points]:
            labels = {each.key: each.value.string_value for each in point.attributes}
            value = point.as_double if point.HasField("as_double") else point.as_int
            found[metric.name, *(labels[name] for name in sorted(labels))] = value
    return found


@pytest.mark.slow
def test_a_collector_gets_counters_and_gauges() -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    requests: list[tuple[str, bytes]] = []
    with collector(requests) as address:
        teller = Telemetry(address)
        teller.export("scores", batch(1), JobState.RUNNING)
        teller.export("scores", batch(2, START + 1_000, lag_records=7), JobState.RUNNING)
        teller.close()
    path, body = requests[-1]
    found = read(body)
    assert path == "/v1/metrics"
    assert found["strandline.elements", "scores", "read"] == 2_000
    assert found["strandline.rows", "scores", "early"] == 40
    assert found["strandline.lag_records", "scores"] == 7
    assert found["strandline.stage_seconds", "scores", "prepare"] == pytest.approx(0.6)
    assert found["strandline.latency_seconds", "scores", "0.5", "on_time"] == pytest.approx(5.6, 0.1)
    assert found["strandline.up", "scores"] == 1


@pytest.mark.slow
def test_an_unreachable_collector_does_not_affect_the_job() -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    with collector([]) as address:
        gone = address
    teller = Telemetry(gone)
    teller.export("scores", batch(1), JobState.RUNNING)
    teller.close()
    assert not [each.name for each in threading.enumerate() if "Metric" in each.name]


@pytest.mark.parametrize("address", ["localhost:4318", "grpc://localhost:4317", "http://", ""])
def test_an_invalid_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidStep, match="not a collector address"):
        require_otlp(address)


def test_without_the_client_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "find_spec", lambda _: None)
    with pytest.raises(SetupError, match="not installed"):
        require_otlp("http://localhost:4318")
