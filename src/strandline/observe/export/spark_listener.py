"""Spark's own streaming queries beside ours: a listener that tells their progress to whoever hears of a job's numbers.

    spark.streams.addListener(QueryListener([Exporter(9000)]))

Spark knows rows, durations, positions and state; panes, watermarks per partition and late elements it does not.
"""

import logging
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
from strandline.observe.metrics.lag import Following, positions_in
from strandline.observe.metrics.metrics import BatchMetrics, PartitionMetrics, StepMetrics

_log: Final = logging.getLogger("strandline")

_STAGES: Final = {
    "source": ("latestOffset", "getBatch"),
    "plan": ("queryPlanning",),
    "step": ("addBatch",),
    "commit": ("walCommit", "commitOffsets", "commitBatch"),
}


class Hears(Protocol):
    """Someone who hears of numbers, as `Exporter` and `Lines` do."""

    def tell(self, job: str, metrics: BatchMetrics, state: JobState) -> None: ...


class QueryListener(StreamingQueryListener):
    """Hears of every query of a session. What goes wrong here is told in the log, and never to Spark."""

    def __init__(self, tellers: Sequence[Hears]) -> None:
        self._tellers = tuple(tellers)
        self._following: dict[str, Following] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        self._following[str(event.id)] = Following()

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        try:
            self.heard(dict(event.progress))
        except Exception as problem:  # noqa: BLE001 - a query does not end because its numbers cannot be told
            _log.warning("numbers of a query were not told: %s", problem)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing is new."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        self._following.pop(str(event.id), None)

    def heard(self, progress: Mapping[str, Any]) -> None:
        """A batch of a query, as Spark tells of it."""
        following = self._following.setdefault(str(progress.get("id")), Following())
        metrics = from_progress(progress, following)
        for teller in self._tellers:
            teller.tell(str(progress.get("name") or progress.get("id")), metrics, JobState.RUNNING)


def from_progress(progress: Mapping[str, Any], following: Following) -> BatchMetrics:
    """The numbers of a batch, as far as Spark knows them."""
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
