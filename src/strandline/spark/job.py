"""A running job: what it has done so far, and how to stop it."""

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
from strandline.spark.delivery.dead_letter_limit import FailureBudget, Spending
from strandline.spark.delivery.deliver import AWAY, Delivered, Patience
from strandline.spark.job_observer import Observer
from strandline.spark.progress import JobProgress, State, Status, progress_of

Listener = Callable[[Delivered], None]

Backlog = Callable[[], Mapping[str, Any]]


class Query(Protocol):
    """What carries a job: a streaming query of Spark's, or a batch that can be asked the same."""

    def awaitTermination(self) -> Any: ...  # noqa: N802 - Spark's name

    def exception(self) -> Exception | None: ...

    def stop(self) -> None: ...


Next = Callable[[], Query]


class _Latest:
    """What Spark tells of the query that carries a job now; nothing of a batch."""

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
    """A pipeline at work. It ends by itself when its sources end; `stop` ends it sooner, and the next run goes on."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        listener: Listener | None = None,
        *,
        complete: bool = False,
        available_now: bool = False,
        budget: FailureBudget | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._checkpoint = checkpoint
        self._observer = observer
        self._complete = complete
        self._available_now = available_now
        self._listener = listener
        self._spending = None if budget is None else Spending(budget)
        self._stopped = False
        self._delivered_at: float | None = None
        self._seconds = 0.0
        self._last: Delivered | None = None
        self._counts = Counts()
        self._problem: StrandlineError | None = None
        self._lock = threading.Lock()
        self._turning = threading.Lock()
        self._terminated = threading.Event()
        self._lost = False
        self._query: Query | None = None
        self._backlog: Backlog = dict
        self._sinks: tuple[OpenSink, ...] = ()
        self._absent: RunError | None = None
        self._hold: int | None = None
        self.patience = Patience(self._waits)

    def hold(self) -> None:
        """Nobody repairs the folder from here on, until the job has ended."""
        self._hold = share(self._checkpoint.folder)

    def release(self) -> None:
        with self._lock:
            hold, self._hold = self._hold, None
        if hold is not None:
            os.close(hold)

    def attach(
        self, query: Query, sinks: tuple[OpenSink, ...], backlog: Backlog = dict, then: Next | None = None
    ) -> Self:
        """The query that carries this job, once it runs, and the one after it, once it has ended by itself."""
        self._query, self._sinks, self._backlog = query, sinks, backlog
        # A Ctrl-C in the middle of a call to the JVM would break the call, so the one who waits makes none.
        threading.Thread(target=self._watch, args=[query, then], daemon=True).start()
        if self._observer is not None:
            self._observer.started(_Latest(self), lambda: self.status, self.stop)
        return self

    def delivered(self, batch: Delivered) -> None:
        """A batch has reached its sinks."""
        now = time.monotonic()
        with self._lock:
            self._seconds = now - (self._delivered_at or now)
            self._delivered_at = now
            self._last = batch
            self._counts += batch.output.counts
        if self._listener is not None:
            self._listener(batch)
        try:
            if self._spending is not None:
                self._spending.spend(batch.output.progress.clock, batch.output.counts, batch.reasons)
        finally:
            if self._observer is not None:
                self._observer.delivered(batch, None if self._spending is None else self._spending.spent)

    def failed(self, problem: StrandlineError) -> None:
        """Keeps an error as it was raised; Spark would hand back only its text."""
        if not (self._stopped and isinstance(problem, AWAY)):
            self._problem = problem

    def _waits(self, problem: RunError | None) -> None:
        """A batch waits for a sink or a registry, or no longer does."""
        self._absent = problem
        if self._observer is not None:
            self._observer.waits(problem)

    @property
    def counts(self) -> Counts:
        """Everyone who came in since this run started."""
        with self._lock:
            return self._counts

    @property
    def last(self) -> Delivered | None:
        """The batch delivered last."""
        with self._lock:
            return self._last

    @property
    def status(self) -> Status:
        """How the job is."""
        last = self.last
        batch = None if last is None else last.batch
        if self.is_complete:
            return Status(State.COMPLETE, batch)
        if self._problem is not None:
            return Status(State.FAILED, batch, str(self._problem))
        if self._terminated.is_set() and not self._stopped and not self._ran_out:
            return Status(
                State.FAILED, batch, str(self._explained(None if self._lost else self._running().exception()))
            )
        if self._terminated.is_set() or self._stopped:
            return Status(State.STOPPED, batch)
        absent = self._absent
        if absent is not None:
            return Status(State.WAITING, batch, str(absent))
        if self._checkpoint.drain.exists():
            return Status(State.DRAINING, batch)
        return Status(State.STARTING if last is None else State.RUNNING, batch)

    @property
    def progress(self) -> JobProgress | None:
        """How far the job has come with the batch delivered last; None before the first."""
        with self._lock:
            if self._last is None:
                return None
            return progress_of(self._last, self._counts, self._seconds)

    def backlog(self) -> Mapping[str, Any]:
        """By source, the files that are there and were not taken up yet; looked up anew each time."""
        return self._backlog()

    @property
    def _ran_out(self) -> bool:
        """Whether a job that reads what is there has read it."""
        return self._available_now and self._query is not None and not self._lost and self._query.exception() is None

    @property
    def is_complete(self) -> bool:
        """Whether every source has ended and the last window has closed."""
        if self._complete:
            return True
        last = self.last
        done = last is not None and last.output.progress.watermark == FOREVER
        return done and last is not None and self._checkpoint.is_committed(last.batch)

    def await_end(self, timeout: float | None = None) -> bool:
        """Waits until the sources end, or what is available now has been read; True if so, False if the time was up."""
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
            self._tell_the_end()
            self._raise_what_ended(self._running())
            if self._ran_out:
                self.stop()
                return True
        return self.is_complete

    def _watch(self, query: Query, then: Next | None) -> None:
        try:
            query.awaitTermination()
            if then is not None and query.exception() is None:
                self._go_on(then)
        except PySparkException:
            pass  # the query keeps it, and whoever waits asks for it
        except (Py4JError, OSError):
            self._lost = True
        finally:
            self._terminated.set()
            self.release()
            self._tell_the_end()

    def _tell_the_end(self) -> None:
        with contextlib.suppress(Py4JError, OSError):  # Spark may be gone, and with it the reason
            if self._observer is not None:
                self._observer.ended(self.status)

    def _go_on(self, then: Next) -> None:
        """Unless the job was stopped: whoever stops it finds either the query that ended or the one after it."""
        with self._turning:
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

    def _raise_what_ended(self, query: Query) -> None:
        if self._lost:
            raise RunError("Spark is gone", detail="its process has died", hint="see spark.log, then start again")
        # A batch that a stop interrupted ends with an error, which is not one of the job.
        if query.exception() is not None and not self._stopped:
            raise self._explained(query.exception())
        if self._problem is not None:
            raise self._problem

    def drain(self) -> None:
        """Ends the input: every window closes and speaks, then the job ends by itself; `await_end` waits for it."""
        self._checkpoint.drain.touch()

    def stop(self) -> None:
        """Ends the job at once; a batch that was under way is done again by the next run."""
        self._stopped = self._stopped or not self._terminated.is_set()
        self.patience.stopping.set()
        with self._turning:
            query = self._query
        if query is not None:
            query.stop()
            self._tell_the_end()
        for sink in self._sinks:
            sink.close()
        self.release()

    def _running(self) -> Query:
        if self._query is None:
            raise RunError("the job has not started")
        return self._query

    def _explained(self, problem: Exception | None) -> StrandlineError:
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


def _reason(told: str) -> str:
    """The line that says most, in a text of traces inside traces: the innermost error of Python, or of Java."""
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    python = [
        line
        for line in lines
        if re.match(r"[\w.]+(?:Error|Exception|Mismatch|Block): .*[^:]$", line) and "py4j" not in line
    ]
    java = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return next(iter([*python[-1:], *java[-1:], *lines[:1]]), "no reason given")
