"""Progress of Spark's own queries, exported as numbers."""

import logging
from typing import Any

import pytest

from strandline.model.counts import Counts
from strandline.observe.export.spark_listener import QueryListener
from strandline.observe.metrics.history import JobState
from strandline.observe.metrics.metrics import BatchMetrics

PROGRESS: dict[str, Any] = {
    "id": "5f0c", "name": "clicks", "batchId": 7, "timestamp": "2026-01-01T12:00:00.000Z", "numInputRows": 100,
    "durationMs": {"latestOffset": 5, "getBatch": 1, "queryPlanning": 20, "addBatch": 300, "walCommit": 10,
                   "commitOffsets": 14, "triggerExecution": 350},
    "eventTime": {"watermark": "2026-01-01T11:59:50.000Z"},
    "stateOperators": [{"operatorName": "stateStoreSave", "numRowsTotal": 12, "memoryUsedBytes": 3_400}],
    "sources": [{"latestOffset": {"clicks": {"0": 150}}, "endOffset": {"clicks": {"0": 100}}}],
    "sink": {"numOutputRows": 8},
}  # fmt: skip


class Heard:
    """An exporter that keeps what it gets."""

    def __init__(self) -> None:
        self.received: list[tuple[str, BatchMetrics]] = []

    def export(self, job: str, metrics: BatchMetrics, state: JobState) -> None:
        assert state is JobState.RUNNING
        self.received.append((job, metrics))


class Event:
    def __init__(self, progress: dict[str, Any]) -> None:
        self.progress, self.id = progress, progress.get("id")


def test_sparks_progress_of_a_batch_becomes_its_numbers() -> None:
    receiver = Heard()
    listener = QueryListener([receiver])
    event: Any = Event(PROGRESS)
    listener.onQueryStarted(event)
    listener.onQueryProgress(event)
    listener.onQueryIdle(event)
    listener.onQueryTerminated(event)
    ((job, result),) = receiver.received
    assert (job, result.batch, result.counts) == ("clicks", 7, Counts(read=100, contributed=100))
    assert (result.emitted, result.lag_records, result.behind_seconds) == (8, 50, 10.0)
    assert (result.state_rows, result.state_bytes) == (12, 3_400)
    assert result.stages == {"source": 0.006, "plan": 0.02, "step": 0.3, "commit": 0.024}
    assert result.read_per_second == pytest.approx(100 / 0.35)


def test_unreadable_progress_is_logged_only(caplog: pytest.LogCaptureFixture) -> None:
    event: Any = Event({"id": "x"})
    with caplog.at_level(logging.WARNING, "strandline"):
        QueryListener([Heard()]).onQueryProgress(event)
    assert "were not exported" in caplog.text
