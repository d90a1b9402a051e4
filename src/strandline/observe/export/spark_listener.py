"""Export the progress of Spark's own streaming queries, by a listener.

    spark.streams.addListener(QueryListener([Exporter(9000)]))

Spark reports rows, durations, positions and state, but no panes, watermarks per partition or late elements.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Protocol

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from strandline.model.counts import Counts
from strandline.observe.metrics.history import JobState
from strandline.observe.metrics.lag import EndHistory, positions_in
from strandline.observe.metrics.metrics import BatchMetrics, PartitionMetrics, StepMetrics
from strandline.redaction import logger

_log: Final = logger("strandline")

_STAGES: Final = {
    "source": ("latestOffset", "getBatch"),
    "plan": ("queryPlanning",),
    "step": ("addBatch",),
    "commit": ("walCommit", "commitOffsets", "commitBatch"),
}


class MetricsReceiver(Protocol):
    """A receiver of metrics, such as `Exporter` and `Lines`."""

    def export(self, job: str, metrics: BatchMetrics, state: JobState) -> None: ...


class QueryListener(StreamingQueryListener):
    """Listens to every query of a session. Errors here are logged, and never reach Spark."""

    def __init__(self, exporters: Sequence[MetricsReceiver]) -> None:
        self._exporters = tuple(exporters)
        self._following: dict[str, EndHistory] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        self._following[str(event.id)] = EndHistory()

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        try:
            self.on_batch(dict(event.progress))
        except Exception as problem:  # noqa: BLE001 - failed metrics must not end a query
            _log.warning("the numbers of a query were not exported: %s", problem)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        self._following.pop(str(event.id), None)

    def on_batch(self, progress: Mapping[str, Any]) -> None:
        """Export a batch of a query from Spark's progress report."""
        following = self._following.setdefault(str(progress.get("id")), EndHistory())
        metrics = from_progress(progress, following)
        for exporter in self._exporters:
            exporter.export(str(progress.get("name") or progress.get("id")), metrics, JobState.RUNNING)


def from_progress(progress: Mapping[str, Any], following: EndHistory) -> BatchMetrics:
    """Convert Spark's progress report to the numbers of a batch."""
    clock = round(datetime.fromisoformat(str(progress["timestamp"])).timestamp() * 1000)
    ms = {name: float(each) for name, each in (progress.get("durationMs") or {}).items()}
    took = ms.get("triggerExecution", 0.0)
    read = int(progress.get("numInputRows") or sum(each.get("numInputRows", 0) for each in progress.get("sources", ())))
    lags = following.lags(positions_in(progress.get("sources", ())), clock)
    seconds = [each.seconds for each in lags.values() if each.seconds is not None]
    mark = (progress.get("eventTime") or {}).get("watermark")
    out = int((progress.get("sink") or {}).get("numOutputRows", -1))
    return BatchMetrics(
        batch=int(progress["batchId"]),
        at=clock + round(took),
        clock=clock,
        seconds=took / 1000,
        counts=Counts(read=read, contributed=read),
        out={"element": out} if out > 0 else {},
        watermark=None if mark is None else round(datetime.fromisoformat(str(mark)).timestamp() * 1000),
        partitions=tuple(PartitionMetrics(name, lag_records=each.records) for name, each in lags.items()),
        partition_count=len(lags),
        lag_records=sum(each.records for each in lags.values()) if lags else None,
        lag_seconds=max(seconds) if seconds else None,
        stages={stage: sum(ms.get(name, 0.0) for name in names) / 1000 for stage, names in _STAGES.items()},
        steps=tuple(_states(progress.get("stateOperators", ()))),
    )


def _states(operators: Sequence[Mapping[str, Any]]) -> list[StepMetrics]:
    return [
        StepMetrics(
            f"{each.get('operatorName', 'state')} {number}",
            rows=int(each.get("numRowsTotal", 0)),
            bytes=int(each.get("memoryUsedBytes", 0)),
        )
        for number, each in enumerate(operators, 1)
    ]
