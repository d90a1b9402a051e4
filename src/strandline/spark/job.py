"""Control a running job: state, progress, stop and drain."""

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Protocol, Self

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from strandline.checkpoint.folder_lock import share
from strandline.checkpoint.job_folder import Checkpoint
from strandline.errors import CheckpointDamaged, RunError, StrandlineError
from strandline.kernel.output import Counts
from strandline.kernel.watermarks import FOREVER
from strandline.ports.sinks import OpenSink
from strandline.spark.delivery.dead_letter_limit import BudgetUsage, FailureBudget
from strandline.spark.delivery.deliver import UNREACHABLE, Delivered, Retry
from strandline.spark.job_observer import Observer
from strandline.spark.progress import JobProgress, State, Status, progress_of
from strandline.spark.sources.log_watch import LogWatch

Listener = Callable[[Delivered], None]

Backlog = Callable[[], Mapping[str, Any]]


class Query(Protocol):
    """A streaming query of Spark, or a batch job with the same methods."""

    def awaitTermination(self) -> Any: ...  # noqa: N802 - Spark's name

    def exception(self) -> Exception | None: ...

    def stop(self) -> None: ...


Next = Callable[[], Query]


class _Latest:
    """Spark's progress reports of the job's current query. A batch job has none."""

    def __init__(self, job: "Job") -> None:
        self._job = job

    @property
    def lastProgress(self) -> Any:  # noqa: N802 - Spark's name
        return getattr(self._job._query, "lastProgress", None)  # noqa: SLF001 - its own

    @property
    def recentProgress(self) -> Any:  # noqa: N802 - Spark's name
        return getattr(self._job._query, "recentProgress", [])  # noqa: SLF001 - its own


_LOOK_EVERY_SECONDS: Final = 0.1
_DAMAGED: Final = re.compile(r"CANNOT_LOAD_STATE_STORE|ChecksumException|errors\.BrokenBlock|CANNOT_READ_\w*FILE")
_UNREADABLE: Final = re.compile(r"\[FAILED_READ_FILE\S*\] Encountered error while reading file (\S+?)\.?\s")


class Job:
    """A running pipeline. It ends by itself when its sources end; `stop` ends it sooner, and the next run goes on."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        listener: Listener | None = None,
        *,
        complete: bool = False,
        available_now: bool = False,
        budget: FailureBudget | None = None,
        observer: Observer | None = None,
        logs: LogWatch | None = None,
    ) -> None:
        self._logs = logs
        self._checkpoint = checkpoint
        self._observer = observer
        self._complete = complete
        self._available_now = available_now
        self._listener = listener
        self._budget_usage = None if budget is None else BudgetUsage(budget)
        self._stopped = False
        self._delivered_at: float | None = None
        self._seconds = 0.0
        self._last: Delivered | None = None
        self._counts = Counts()
        self._problem: StrandlineError | None = None
        self._lock = threading.Lock()
        self._switching = threading.Lock()
        self._terminated = threading.Event()
        self._jvm_gone = False
        self._query: Query | None = None
        self._backlog: Backlog = dict
        self._sinks: tuple[OpenSink, ...] = ()
        self._unreachable: RunError | None = None
        self._hold: int | None = None
        self.retry = Retry(self._report_wait)

    def hold(self) -> None:
        """Lock the folder against repair until the job has ended."""
        self._hold = share(self._checkpoint.folder)

    def release(self) -> None:
        with self._lock:
            hold, self._hold = self._hold, None
        if hold is not None:
            os.close(hold)

    def attach(
        self, query: Query, sinks: tuple[OpenSink, ...], backlog: Backlog = dict, then: Next | None = None
    ) -> Self:
        """Watch a query that runs this job. `then` starts the next one when it has ended by itself."""
        self._query, self._sinks, self._backlog = query, sinks, backlog
        # Ctrl-C during a call to the JVM would break the call. So the thread that waits makes none.
        threading.Thread(target=self._watch, args=[query, then], daemon=True).start()
        if self._logs is not None:
            self._logs.watch(self._fail)
        if self._observer is not None:
            self._observer.started(_Latest(self), lambda: self.status, self.stop)
        return self

    def delivered(self, batch: Delivered) -> None:
        """Record a batch that all sinks hold."""
        now = time.monotonic()
        with self._lock:
            self._seconds = now - (self._delivered_at or now)
            self._delivered_at = now
            self._last = batch
            self._counts += batch.output.counts
        if self._listener is not None:
            self._listener(batch)
        try:
            if self._budget_usage is not None:
                progress, counts = batch.output.progress, batch.output.counts
                self._budget_usage.spend(progress.clock, counts, batch.reasons, batch.refused)
        finally:
            if self._observer is not None:
                self._observer.delivered(batch, None if self._budget_usage is None else self._budget_usage.spent)

    def failed(self, problem: StrandlineError) -> None:
        """Keep an error of the batch function. Spark would return only its text."""
        if self._problem is None and not (self._stopped and isinstance(problem, UNREACHABLE)):
            self._problem = problem

    def _fail(self, problem: StrandlineError) -> None:
        """End the job with an error that was found beside its batches."""
        self.failed(problem)
        self.retry.stopping.set()
        with self._switching:
            query = self._query
        if query is not None:
            with contextlib.suppress(Py4JError, PySparkException, OSError):
                query.stop()

    def _look_for_replaced_logs(self, query: Query) -> None:
        """Explain an error of Spark by a log that was made anew, which Spark only tells by its offsets."""
        if self._logs is None or self._problem is not None or query.exception() is None:
            return
        try:
            self._logs.check()
        except StrandlineError as problem:
            self.failed(problem)

    def _report_wait(self, problem: RunError | None) -> None:
        """Record that a batch waits for a sink or a registry, or goes on."""
        self._unreachable = problem
        if self._observer is not None:
            self._observer.waits(problem)

    @property
    def counts(self) -> Counts:
        """Return the counts of all batches since this run started."""
        with self._lock:
            return self._counts

    @property
    def last(self) -> Delivered | None:
        """Return the last delivered batch."""
        with self._lock:
            return self._last

    @property
    def status(self) -> Status:
        """Return the state of the job."""
        last = self.last
        batch = None if last is None else last.batch
        if self.is_complete:
            return Status(State.COMPLETE, batch)
        if self._problem is not None:
            return Status(State.FAILED, batch, str(self._problem))
        if self._terminated.is_set() and not self._stopped and not self._read_all:
            return Status(
                State.FAILED, batch, str(self._explain(None if self._jvm_gone else self._running().exception()))
            )
        if self._terminated.is_set() or self._stopped:
            return Status(State.STOPPED, batch)
        absent = self._unreachable
        if absent is not None:
            return Status(State.WAITING, batch, str(absent))
        if self._checkpoint.drain.exists():
            return Status(State.DRAINING, batch)
        return Status(State.STARTING if last is None else State.RUNNING, batch)

    @property
    def progress(self) -> JobProgress | None:
        """Return the progress after the last delivered batch; None before the first."""
        with self._lock:
            if self._last is None:
                return None
            return progress_of(self._last, self._counts, self._seconds)

    def backlog(self) -> Mapping[str, Any]:
        """Return for each source the files that are not read yet. Looked up with each call."""
        return self._backlog()

    @property
    def _read_all(self) -> bool:
        """Whether an available_now job has read what was there."""
        return (
            self._available_now and self._query is not None and not self._jvm_gone and self._query.exception() is None
        )

    @property
    def is_complete(self) -> bool:
        """Whether every source has ended and every window has closed."""
        if self._complete:
            return True
        last = self.last
        done = last is not None and last.output.progress.watermark == FOREVER
        return done and last is not None and self._checkpoint.is_committed(last.batch)

    def await_end(self, timeout: float | None = None) -> bool:
        """Wait until the sources end, or all available input has been read. Returns False on timeout."""
        if self._complete:
            return True
        self._running()
        until = None if timeout is None else time.monotonic() + timeout
        while until is None or time.monotonic() < until:
            if self.is_complete:
                self.stop()
                return True
            if self._terminated.wait(_LOOK_EVERY_SECONDS):
                break
        if self._terminated.is_set():
            self._report_end()
            self._raise_error(self._running())
            if self._read_all:
                self.stop()
                return True
        return self.is_complete

    def _watch(self, query: Query, then: Next | None) -> None:
        try:
            query.awaitTermination()
            if then is not None and query.exception() is None and self._problem is None:
                self._start_next(then)
            self._look_for_replaced_logs(self._query or query)
        except PySparkException:  # the query keeps it for await_end
            self._look_for_replaced_logs(self._query or query)
        except (Py4JError, OSError):
            self._jvm_gone = True
        finally:
            self._terminated.set()
            if self._logs is not None:
                self._logs.end()
            self.release()
            self._report_end()

    def _report_end(self) -> None:
        with contextlib.suppress(Py4JError, OSError):  # Spark may be gone, and with it the reason
            if self._observer is not None:
                self._observer.ended(self.status)

    def _start_next(self, then: Next) -> None:
        """Start the next query, unless the job was stopped. `stop` always finds the ended or the new query."""
        with self._switching:
            if self._stopped:
                return
            try:
                self._query = then()
            except StrandlineError as problem:
                self._problem = problem
                return
            except PySparkException as problem:
                self._problem = RunError("Spark could not go on", detail=_reason(str(problem)), hint="see spark.log")
                return
        self._query.awaitTermination()

    def _raise_error(self, query: Query) -> None:
        if self._jvm_gone:
            raise RunError("Spark is gone", detail="its process has died", hint="see spark.log, then start again")
        # A batch that a stop interrupted ends with an error, which is not one of the job.
        if query.exception() is not None and not self._stopped:
            raise self._explain(query.exception())
        if self._problem is not None:
            raise self._problem

    def drain(self) -> None:
        """End the input: every window closes and fires, then the job ends. `await_end` waits for it."""
        self._checkpoint.drain.touch()

    def stop(self) -> None:
        """End the job at once. The next run repeats a batch that was interrupted."""
        self._stopped = self._stopped or not self._terminated.is_set()
        self.retry.stopping.set()
        with self._switching:
            query = self._query
        if query is not None:
            query.stop()
            self._report_end()
        if self._logs is not None:
            self._logs.end()
        for sink in self._sinks:
            sink.close()
        self.release()

    def _running(self) -> Query:
        if self._query is None:
            raise RunError("the job has not started")
        return self._query

    def _explain(self, problem: Exception | None) -> StrandlineError:
        if self._problem is not None:
            return self._problem
        if isinstance(problem, StrandlineError):
            return problem
        file = _UNREADABLE.search(str(problem))
        if file is not None:
            hint = "put a whole file of that name in its place, and run once with files(…, on_lost='continue')"
            return RunError(f"the file {file[1]} cannot be read", detail=_reason(str(problem)), hint=hint)
        if _DAMAGED.search(str(problem)):
            hint = f"strandline checkpoint check {self._checkpoint.folder}"
            return CheckpointDamaged("what the job has kept cannot be read", detail=_reason(str(problem)), hint=hint)
        return RunError("Spark stopped the job", detail=_reason(str(problem)), hint="see spark.log")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _reason(text: str) -> str:
    """Return the innermost error of Python or Java, from a text of nested stack traces."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = [
        line
        for line in lines
        if re.match(r"[\w.]+(?:Error|Exception|Mismatch|Block): .*[^:]$", line) and "py4j" not in line
    ]
    java = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return next(iter([*python[-1:], *java[-1:], *lines[:1]]), "no reason given")
