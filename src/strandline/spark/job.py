"""Control a running job: state, progress, stop and drain."""

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from strandline.checkpoint.folder_lock import share
from strandline.checkpoint.job_folder import Checkpoint
from strandline.errors import CheckpointDamaged, RunError, StrandlineError, hide_internal_columns
from strandline.kernel.output import Counts
from strandline.kernel.watermarks import FOREVER
from strandline.model.elements import Duration
from strandline.plan.stages import Stages
from strandline.ports.sinks import OpenSink
from strandline.ports.sources import KnownEnds
from strandline.ports.waiting import Waiting, Waits
from strandline.spark.delivery.dead_letter_limit import BudgetUsage, FailureBudget
from strandline.spark.delivery.deliver import UNREACHABLE, Delivered, Retry, raised_by_a_task
from strandline.spark.error_messages import innermost, translate_error
from strandline.spark.job_observer import Observer
from strandline.spark.progress import JobProgress, State, Status, progress_of
from strandline.spark.service_monitor import FAILED_TASK, ServiceMonitor, TaskFailures
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
        start_within: Duration | None = None,
    ) -> None:
        self._logs: LogWatch | None = None
        self._checkpoint = checkpoint
        self._start_within = start_within
        self._started_at = time.monotonic()
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
        self._hold: int | None = None
        self._monitor: ServiceMonitor | None = None
        self._failed_tasks: TaskFailures | None = None
        self._batch_began: float | None = None
        self.waits = Waits(self._waits_changed)
        self.retry = Retry(self._report_wait, waits=self.waits)

    def begin(self, stages: Stages) -> None:
        """Watch the services that the job needs, and let its folder show what it waits for."""
        if self._observer is not None:
            self._observer.starting(lambda: self.status, self.stop)
        self._monitor = ServiceMonitor(stages, self.waits)
        self._monitor.watch(self._check)

    def abandon(self, problem: BaseException) -> StrandlineError | None:
        """Record that the job could not start. Returns the error to raise in place of `problem`, if there is one."""
        if isinstance(problem, StrandlineError) and self._problem is None:
            self._problem = problem
        self._end_watch()
        self.release()
        if self._observer is not None:
            failed = Status(State.FAILED, None, str(self._problem or problem))
            stopped = self._stopped or isinstance(problem, KeyboardInterrupt)
            self._observer.ended(Status(State.STOPPED, None) if stopped else failed)
        return self._problem if self._problem is not problem else None

    def ends(self, scan: int) -> KnownEnds:
        """Return where the partitions of a source end, as its service has told lately."""
        return KnownEnds() if self._monitor is None else self._monitor.ends(scan)

    def watch_logs(self, logs: LogWatch) -> LogWatch:
        """Check the identities of the logs that the job reads from now on."""
        self._logs = logs
        return logs

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
        if self._stopped or self.retry.stopping.is_set():
            query.stop()  # a stop was requested during the start
        return self

    @property
    def folder(self) -> Path:
        """Return the job's folder."""
        return self._checkpoint.folder

    def groups(self) -> frozenset[str]:
        """Return the groups of Spark jobs in which the current query runs its batches."""
        query = self._query
        return frozenset({str(getattr(query, name)) for name in ("runId", "group") if hasattr(query, name)})

    def watch_tasks(self, failures: TaskFailures) -> None:
        """Report failed tasks that Spark runs again."""
        self._failed_tasks = failures

    def refuse_batch_after_end(self) -> None:
        """End the query in place of running a batch after every window has closed: its elements would all be late."""
        last = self.last
        if last is None or last.output.progress.watermark != FOREVER:
            return
        self.retry.stopping.set()
        if self._query is not None:
            threading.Thread(target=self._query.stop, name="strandline-end", daemon=True).start()
        raise RuntimeError("the job has ended")

    @contextlib.contextmanager
    def during_batch(self) -> Iterator[None]:
        """Mark the time in which a batch runs: only then are its tasks watched."""
        self._batch_began = time.monotonic()
        try:
            yield
        finally:
            self._batch_began = None
            self.waits.answered(FAILED_TASK)

    def _check(self) -> None:
        """Look for failed tasks, and for a start that takes too long. Called every second."""
        began = self._batch_began
        if self._failed_tasks is not None and began is not None and time.monotonic() - began > 1:
            found = self._failed_tasks()
            if found is None:
                self.waits.answered(FAILED_TASK)
            elif self._batch_began == began:
                self.waits.failed(FAILED_TASK, _task_error(found[1]), tries=found[0])
        waiting, limit = self.waits.longest, self._start_within
        if limit is None or waiting is None or self.last is not None:
            return
        if time.monotonic() - self._started_at > limit.ms / 1000:
            hint = "start what it waits for, or allow more time with start_within="
            within = f"{limit.ms / 1000:g} s"
            self._problem = RunError(f"the job did not start within {within}", detail=str(waiting), hint=hint)
            self.retry.stopping.set()
            self._end_watch()
            if self._query is not None:
                self._query.stop()

    def _end_watch(self) -> None:
        if self._monitor is not None:
            self._monitor.stop()
        self.waits.cleared()

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
        """Count that a batch waits for a sink or a registry, or goes on."""
        if self._observer is not None:
            self._observer.waits(problem)

    def _waits_changed(self, _: Waiting | None) -> None:
        if self._observer is not None:
            self._observer.changed()

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
            return Status(State.COMPLETE, batch, self._left())
        if self._problem is not None:
            return Status(State.FAILED, batch, str(self._problem))
        if self._terminated.is_set() and not self._stopped and not self._read_all:
            return Status(
                State.FAILED, batch, str(self._explain(None if self._jvm_gone else self._running().exception()))
            )
        if self._terminated.is_set() or self._stopped:
            return Status(State.STOPPED, batch)
        waiting = self.waits.longest
        if waiting is not None:
            return Status(State.WAITING, batch, str(waiting), waiting)
        if self._checkpoint.drain.exists():
            return Status(State.DRAINING, batch)
        return Status(State.STARTING if last is None else State.RUNNING, batch)

    @property
    def problem(self) -> str:
        """Return why the job failed, or what it waits for; empty if neither."""
        return self.status.problem

    @property
    def waiting(self) -> Waiting | None:
        """Return what the job waits for; None if it waits for nothing."""
        return self.status.waiting

    @property
    def unread(self) -> int | None:
        """Return how many records of topics were left unread after the last batch; None if that is unknown."""
        last = self.last
        return sum(each.end - each.reached for each in last.positions) if last is not None and last.positions else None

    def _left(self) -> str:
        """Describe what a drain left unread; empty if nothing, or if that is unknown."""
        unread = self.unread
        return f"drained: every window is closed, and {unread} records were not read" if unread else ""

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
            self._end_watch()
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
                self._problem = translate_error(problem) or RunError(
                    "Spark could not go on", detail=_reason(problem), hint="see spark.log"
                )
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
        self._end_watch()
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
            return RunError(f"the file {file[1]} cannot be read", detail=_reason(problem), hint=hint)
        if _DAMAGED.search(str(problem)):
            hint = f"strandline checkpoint check {self._checkpoint.folder}"
            return CheckpointDamaged("what the job has kept cannot be read", detail=_reason(problem), hint=hint)
        if problem is not None and (translated := translate_error(problem)) is not None:
            return translated
        unknown = RunError("Spark stopped the job", detail=_reason(problem), hint="see spark.log")
        unknown.__cause__ = problem
        return unknown

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _task_error(text: str) -> str:
    """Return the reason of a failed task, from the text of its error in Spark."""
    raised = raised_by_a_task(RuntimeError(text))
    found = raised if isinstance(raised, StrandlineError) else translate_error(text)
    return hide_internal_columns(innermost(text)) if found is None else str(found)


def _reason(problem: Exception | None) -> str:
    return hide_internal_columns(innermost(str(problem)))
