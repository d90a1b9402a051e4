"""A running job: what it has done so far, and how to stop it."""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from strandline.errors import RunError, StrandlineError
from strandline.kernel.output import Counts
from strandline.kernel.watermarks import FOREVER
from strandline.spark.checkpoint import Checkpoint
from strandline.spark.deliver import Delivered
from strandline.spark.ports import OpenSink

Listener = Callable[[Delivered], None]

_LOOK_EVERY_SECONDS: Final = 0.1


class Job:
    """A pipeline at work. It ends by itself when its sources end; `stop` ends it sooner, and the next run goes on."""

    def __init__(self, checkpoint: Checkpoint, listener: Listener | None = None, *, complete: bool = False) -> None:
        self._checkpoint = checkpoint
        self._complete = complete
        self._listener = listener
        self._last: Delivered | None = None
        self._counts = Counts()
        self._problem: StrandlineError | None = None
        self._lock = threading.Lock()
        self._terminated = threading.Event()
        self._lost = False
        self._query: StreamingQuery | None = None
        self._sink: OpenSink | None = None

    def attach(self, query: StreamingQuery, sink: OpenSink) -> Self:
        """The query that carries this job, once it runs."""
        self._query, self._sink = query, sink
        # A Ctrl-C in the middle of a call to the JVM would break the call, so the one who waits makes none.
        threading.Thread(target=self._watch, args=[query], daemon=True).start()
        return self

    def delivered(self, batch: Delivered) -> None:
        """A batch has reached the sink."""
        with self._lock:
            self._last = batch
            self._counts += batch.output.counts
        if self._listener is not None:
            self._listener(batch)

    def failed(self, problem: StrandlineError) -> None:
        """Keeps an error as it was raised; Spark would hand back only its text."""
        self._problem = problem

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
    def is_complete(self) -> bool:
        """Whether every source has ended and the last window has closed."""
        if self._complete:
            return True
        last = self.last
        done = last is not None and last.output.progress.watermark == FOREVER
        return done and last is not None and self._checkpoint.is_committed(last.batch)

    def await_end(self, timeout: float | None = None) -> bool:
        """Waits until the sources end; True if they did, False if the time was up."""
        if self._complete:
            return True
        query = self._running()
        until = None if timeout is None else time.monotonic() + timeout
        while until is None or time.monotonic() < until:
            if self.is_complete:
                self.stop()
                return True
            if self._terminated.wait(_LOOK_EVERY_SECONDS):
                break
        if self._terminated.is_set():
            self._raise_what_ended(query)
        return self.is_complete

    def _watch(self, query: StreamingQuery) -> None:
        try:
            query.awaitTermination()
        except PySparkException:
            pass  # the query keeps it, and whoever waits asks for it
        except (Py4JError, OSError):
            self._lost = True
        finally:
            self._terminated.set()

    def _raise_what_ended(self, query: StreamingQuery) -> None:
        if self._lost:
            raise RunError("Spark is gone", detail="its process has died", hint="see spark.log, then start again")
        if query.exception() is not None:
            raise self._explained(query.exception())

    def drain(self) -> None:
        """Ends the input: every window closes and speaks, then the job ends by itself; `await_end` waits for it."""
        self._checkpoint.drain.touch()

    def stop(self) -> None:
        """Ends the job at once; a batch that was under way is done again by the next run."""
        if self._query is not None:
            self._query.stop()
        if self._sink is not None:
            self._sink.close()

    def _running(self) -> StreamingQuery:
        if self._query is None:
            raise RunError("the job has not started")
        return self._query

    def _explained(self, problem: PySparkException | None) -> StrandlineError:
        if self._problem is not None:
            return self._problem
        lines = [line for line in str(problem).splitlines() if line.strip()]
        return RunError("Spark stopped the job", detail=lines[0] if lines else "no reason given", hint="see spark.log")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
