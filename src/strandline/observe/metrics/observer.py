"""Keeps a running job's numbers: hears of every batch, and does the rest in a thread of its own.

The job only puts what it delivered into a queue. The thread waits for what Spark says of the batch, computes, writes to
the store, asks the alarms, tells whoever listens (`Teller`), gives a sign of life, and looks whether the job was asked
to stop. Whatever goes wrong here is told once in the log, and never to the job.
"""

import contextlib
import logging
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
from strandline.observe.metrics.pane_recording import Followed
from strandline.observe.metrics.store import Keeping, Store
from strandline.spark.delivery.deliver import Delivered
from strandline.spark.progress import State, Status

LOOK_SECONDS: Final = 0.25
BEAT_SECONDS: Final = 2.0
_PATIENCE_SECONDS: Final = 1.0
"""How long a batch waits for what Spark says of it."""
_QUEUED: Final = 32
_END_SECONDS: Final = 10.0

_log: Final = logging.getLogger("strandline")


class Teller(Protocol):
    """Someone else who hears of a job's numbers."""

    def tell(self, job: str, metrics: BatchMetrics, state: JobState) -> None: ...

    def close(self) -> None: ...


class Watchman(Protocol):
    """Looks at the store after a batch, or a while without one, and raises alarms."""

    def look(self, store: Store, now: int) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Heard:
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
        keeping: Keeping | None = None,
        tellers: Callable[[], Sequence[Teller]] = tuple,
        watchman: Watchman | None = None,
    ) -> None:
        self._folder, self._name = folder, name
        self._keeping = keeping or Keeping()
        self._open, self._watchman = tellers, watchman
        self._tellers: tuple[Teller, ...] = ()
        self._panes = Followed(keys) if self._keeping.panes else None
        self._meter = Meter()
        self._queue: deque[_Heard] = deque()
        self._retries = 0
        self._store: Store | None = None
        self._query: Any = None
        self._status: Callable[[], Status] = lambda: Status(State.STARTING, None)
        self._stop: Callable[[], None] = lambda: None
        self._last: Status | None = None
        self._woken, self._over = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._told: set[str] = set()
        self._beaten = 0.0
        self._state: JobState | None = None

    def started(self, query: Any, status: Callable[[], Status], stop: Callable[[], None]) -> None:
        self._query, self._status, self._stop = query, status, stop
        with self._safely("cores"):
            self._meter.cores = max(SparkSession.active().sparkContext.defaultParallelism, 1)
        with self._safely("start"):
            take_back(self._folder, STOP)
            self._store = Store(self._folder, self._name, self._keeping)
            self._store.start(_now())
        with self._safely("tellers"):
            self._tellers = tuple(self._open())
        self._thread = threading.Thread(target=self._run, name="strandline-numbers", daemon=True)
        self._thread.start()

    def delivered(self, batch: Delivered, spent: float | None) -> None:
        with self._lock:
            retries, self._retries = self._retries, 0
            full = len(self._queue) >= _QUEUED
            # What is counted stays counted; panes of a batch are let go when they come faster than they are read.
            kept = replace(batch, output=replace(batch.output, panes=None), outputs=()) if full else batch
            self._queue.append(_Heard(kept, spent, retries, time.monotonic()))
        self._woken.set()

    def waits(self, problem: RunError | None) -> None:
        if problem is not None:
            with self._lock:
                self._retries += 1

    def ended(self, status: Status) -> None:
        with self._lock:
            self._last = self._last or status
        self._over.set()
        self._woken.set()
        if self._thread is not None and threading.current_thread() is not self._thread:
            self._thread.join(_END_SECONDS)

    def failed(self, problem: str) -> None:
        """It could not even start."""
        with self._safely("start"), contextlib.closing(Store(self._folder, self._name, self._keeping)) as store:
            store.start(_now())
            store.alive(_now(), JobState.FAILED, problem)
            store.event(_now(), "failed", problem)

    def _run(self) -> None:
        while not self._over.is_set():
            self._woken.wait(LOOK_SECONDS)
            self._woken.clear()
            self._turn()
        self._finish()

    def _turn(self) -> None:
        with self._safely("requests"):
            if is_asked(self._folder, STOP):
                take_back(self._folder, STOP)
                # By another thread: a job that stops waits for this one.
                threading.Thread(target=self._stop, name="strandline-stop", daemon=True).start()
        with self._safely("numbers"):
            self._record(patient=True)
        if time.monotonic() - self._beaten >= BEAT_SECONDS:
            self._beat(self._status)

    def _finish(self) -> None:
        with self._safely("numbers"):
            self._record(patient=False)
        last = self._last
        if last is not None:
            self._beat(lambda: last)
        for teller in self._tellers:
            with self._safely("end"):
                teller.close()
        if self._watchman is not None:
            with self._safely("end"):
                self._watchman.close()
        if self._store is not None:
            with self._safely("end"):
                self._store.close()

    def _beat(self, ask: Callable[[], Status]) -> None:
        """A sign of life, with how the job is; what has changed is an event."""
        with self._safely("life"):
            self._beaten = time.monotonic()
            status = ask()
            state = JobState(status.state.value)
            if self._store is None:
                return
            self._store.alive(_now(), state, status.problem)
            if state is not self._state and state is not JobState.STARTING:
                self._state = state
                self._store.event(_now(), state.value, status.problem or f"after batch {status.batch}")
            if self._watchman is not None:
                self._watchman.look(self._store, _now())

    def _record(self, *, patient: bool) -> None:
        while self._queue:
            heard = self._queue[0]
            said = self._said(heard.batch.batch)
            if said is None and patient and time.monotonic() - heard.since < _PATIENCE_SECONDS:
                return
            with self._lock:
                self._queue.popleft()
            self._keep(heard, said)

    def _said(self, batch: int) -> Mapping[str, Any] | None:
        """What Spark says of a batch, once it has ended; nothing if it cannot be asked."""
        try:
            return self._asked(batch)
        except Exception as problem:  # noqa: BLE001 - Spark may be gone; what was delivered is known all the same
            self._warn("progress", problem)
            return {}

    def _asked(self, batch: int) -> Mapping[str, Any] | None:
        last = self._query.lastProgress
        if last is None or last["batchId"] < batch:
            return None
        if last["batchId"] == batch:
            return dict(last)
        return next((dict(each) for each in reversed(self._query.recentProgress) if each["batchId"] == batch), {})

    def _keep(self, heard: _Heard, said: Mapping[str, Any] | None) -> None:
        metrics = self._meter.measure(heard.batch, said, retries=heard.retries, budget=heard.spent)
        lines = self._panes.lines(heard.batch) if self._panes is not None else []
        if self._store is not None:
            with self._safely("store"):
                self._store.add(metrics, lines)
        for teller in self._tellers:
            with self._safely(type(teller).__name__):
                teller.tell(self._name, metrics, self._state or JobState.RUNNING)

    @contextlib.contextmanager
    def _safely(self, what: str) -> Iterator[None]:
        """Nothing that goes wrong here may reach the job; each kind is told once."""
        try:
            yield
        except Exception as problem:  # noqa: BLE001 - a job does not end because its numbers cannot be kept
            self._warn(what, problem)

    def _warn(self, what: str, problem: Exception) -> None:
        if what not in self._told:
            self._told.add(what)
            _log.warning("numbers of the job are not complete (%s): %s: %s", what, type(problem).__name__, problem)


def _now() -> int:
    return time.time_ns() // 1_000_000
