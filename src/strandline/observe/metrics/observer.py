"""Record a running job's numbers in a background thread.

The job only queues what it delivered. The thread waits for Spark's progress report of the batch, computes the numbers,
writes them to the store, evaluates alarms, publishes to exporters (`MetricsExporter`), sends a heartbeat, and checks
for stop requests. Errors here are logged once per kind, and never reach the job.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

from pyspark.sql import SparkSession

from strandline.errors import RunError
from strandline.observe.job_requests import STOP, is_asked, take_back
from strandline.observe.metrics.history import JobState
from strandline.observe.metrics.measure import Meter
from strandline.observe.metrics.metrics import BatchMetrics
from strandline.observe.metrics.pane_recording import PaneSelector
from strandline.observe.metrics.store import Retention, Store
from strandline.redaction import logger
from strandline.spark.delivery.deliver import Delivered
from strandline.spark.progress import State, Status

POLL_SECONDS: Final = 0.25
HEARTBEAT_SECONDS: Final = 2.0
_PATIENCE_SECONDS: Final = 1.0
"""How long a batch waits for Spark's progress report."""
_QUEUED: Final = 32
_END_SECONDS: Final = 10.0

_log: Final = logger("strandline")


class MetricsExporter(Protocol):
    """A receiver of a job's numbers."""

    def export(self, job: str, metrics: BatchMetrics, state: JobState) -> None: ...

    def close(self) -> None: ...


class AlarmWatcher(Protocol):
    """Evaluates alarms after a batch, or periodically without one."""

    def evaluate(self, store: Store, now: int) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _QueuedBatch:
    """A batch in the queue."""

    batch: Delivered
    spent: float | None
    retries: int
    since: float


class Recorder:
    """The observer of one job."""

    def __init__(
        self,
        folder: Path,
        name: str,
        keys: Mapping[int, Sequence[str]],
        *,
        retention: Retention | None = None,
        exporters: Callable[[], Sequence[MetricsExporter]] = tuple,
        alarm_watcher: AlarmWatcher | None = None,
    ) -> None:
        self._folder, self._name = folder, name
        self._retention = retention or Retention()
        self._open_exporters, self._alarm_watcher = exporters, alarm_watcher
        self._exporters: tuple[MetricsExporter, ...] = ()
        self._panes = PaneSelector(keys) if self._retention.panes else None
        self._meter = Meter()
        self._queue: deque[_QueuedBatch] = deque()
        self._retries = 0
        self._store: Store | None = None
        self._query: Any = None
        self._status: Callable[[], Status] = lambda: Status(State.STARTING, None)
        self._stop: Callable[[], None] = lambda: None
        self._last: Status | None = None
        self._wake, self._done = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._warned: set[str] = set()
        self._last_heartbeat = 0.0
        self._state: JobState | None = None

    def starting(self, status: Callable[[], Status], stop: Callable[[], None]) -> None:
        self._status, self._stop = status, stop
        with self._log_errors("start"):
            take_back(self._folder, STOP)
            self._store = Store(self._folder, self._name, self._retention)
            self._store.start(_now())
        with self._log_errors("tellers"):
            self._exporters = tuple(self._open_exporters())
        self._thread = threading.Thread(target=self._run, name="strandline-numbers", daemon=True)
        self._thread.start()

    def started(self, query: Any, status: Callable[[], Status], stop: Callable[[], None]) -> None:
        self._query = query
        with self._log_errors("cores"):
            self._meter.cores = max(SparkSession.active().sparkContext.defaultParallelism, 1)
        if self._thread is None:
            self.starting(status, stop)

    def delivered(self, batch: Delivered, spent: float | None) -> None:
        with self._lock:
            retries, self._retries = self._retries, 0
            full = len(self._queue) >= _QUEUED
            # Counts are kept; a batch's panes are dropped when batches arrive faster than they are processed.
            kept = replace(batch, output=replace(batch.output, panes=None), outputs=()) if full else batch
            self._queue.append(_QueuedBatch(kept, spent, retries, time.monotonic()))
        self._wake.set()

    def waits(self, problem: RunError | None) -> None:
        if problem is not None:
            with self._lock:
                self._retries += 1

    def changed(self) -> None:
        self._last_heartbeat = -HEARTBEAT_SECONDS
        self._wake.set()

    def ended(self, status: Status) -> None:
        with self._lock:
            self._last = self._last or status
        self._done.set()
        self._wake.set()
        if self._thread is not None and threading.current_thread() is not self._thread:
            self._thread.join(_END_SECONDS)

    def failed(self, problem: str) -> None:
        """Record that the job could not start, unless that is recorded already."""
        if self._thread is not None:
            return
        with self._log_errors("start"), contextlib.closing(Store(self._folder, self._name, self._retention)) as store:
            store.start(_now())
            store.alive(_now(), JobState.FAILED, problem)
            store.event(_now(), "failed", problem)

    def _run(self) -> None:
        while not self._done.is_set():
            self._wake.wait(POLL_SECONDS)
            self._wake.clear()
            self._step()
        self._finish()

    def _step(self) -> None:
        with self._log_errors("requests"):
            if is_asked(self._folder, STOP):
                take_back(self._folder, STOP)
                # In another thread: a job that stops waits for this one.
                threading.Thread(target=self._stop, name="strandline-stop", daemon=True).start()
        with self._log_errors("numbers"):
            self._record(patient=True)
        if time.monotonic() - self._last_heartbeat >= HEARTBEAT_SECONDS:
            self._heartbeat(self._status)

    def _finish(self) -> None:
        with self._log_errors("numbers"):
            self._record(patient=False)
        last = self._last
        if last is not None:
            self._heartbeat(lambda: last)
        for exporter in self._exporters:
            with self._log_errors("end"):
                exporter.close()
        if self._alarm_watcher is not None:
            with self._log_errors("end"):
                self._alarm_watcher.close()
        if self._store is not None:
            with self._log_errors("end"):
                self._store.close()

    def _heartbeat(self, get_status: Callable[[], Status]) -> None:
        """Send a heartbeat with the job's state; a changed state is recorded as an event."""
        with self._log_errors("life"):
            self._last_heartbeat = time.monotonic()
            status = get_status()
            state = JobState(status.state.value)
            if self._store is None:
                return
            self._store.alive(_now(), state, status.problem)
            if state is not self._state and (state is not JobState.STARTING or self._state is not None):
                self._state = state
                done = "before the first batch" if status.batch is None else f"after batch {status.batch}"
                self._store.event(_now(), state.value, status.problem or done)
            if self._alarm_watcher is not None:
                self._alarm_watcher.evaluate(self._store, _now())

    def _record(self, *, patient: bool) -> None:
        while self._queue:
            queued = self._queue[0]
            report = self._progress(queued.batch.batch)
            if report is None and patient and time.monotonic() - queued.since < _PATIENCE_SECONDS:
                return
            with self._lock:
                self._queue.popleft()
            self._publish(queued, report)

    def _progress(self, batch: int) -> Mapping[str, Any] | None:
        """Spark's progress report of a batch once it has ended; empty if Spark cannot be asked."""
        try:
            return self._find_progress(batch)
        except Exception as problem:  # noqa: BLE001 - Spark may be gone; the delivered batch is known anyway
            self._warn("progress", problem)
            return {}

    def _find_progress(self, batch: int) -> Mapping[str, Any] | None:
        last = self._query.lastProgress
        if last is None or last["batchId"] < batch:
            return None
        if last["batchId"] == batch:
            return dict(last)
        return next((dict(each) for each in reversed(self._query.recentProgress) if each["batchId"] == batch), {})

    def _publish(self, queued: _QueuedBatch, report: Mapping[str, Any] | None) -> None:
        metrics = self._meter.measure(queued.batch, report, retries=queued.retries, budget=queued.spent)
        lines = self._panes.lines(queued.batch) if self._panes is not None else []
        if self._store is not None:
            with self._log_errors("store"):
                self._store.add(metrics, lines)
        for exporter in self._exporters:
            with self._log_errors(type(exporter).__name__):
                exporter.export(self._name, metrics, self._state or JobState.RUNNING)

    @contextlib.contextmanager
    def _log_errors(self, what: str) -> Iterator[None]:
        """Log errors once per kind, and keep them from the job."""
        try:
            yield
        except Exception as problem:  # noqa: BLE001 - failed metrics must not end a job
            self._warn(what, problem)

    def _warn(self, what: str, problem: Exception) -> None:
        if what not in self._warned:
            self._warned.add(what)
            _log.warning("the numbers of the job are incomplete (%s): %s: %s", what, type(problem).__name__, problem)


def _now() -> int:
    return time.time_ns() // 1_000_000
