"""Ask a lookup table for keys: in bounded requests, some at a time, at a limited rate, and again after a failure."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from strandline.errors import LookupFailed, LookupUnavailable
from strandline.kernel.join.lookup_join import answers_of, failed_answers, key_columns
from strandline.kernel.panics import ANY_FAILURE, message_of
from strandline.model.lookup_join import LookupJoin, LookupLimits, OnFailure
from strandline.ports.lookups import REQUEST_SECONDS, OpenLookup

_FIRST_PAUSE: Final = 0.2


@dataclass(slots=True)
class RateLimit:
    """Let at most so many requests begin in a second, evenly spaced."""

    per_second: float | None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _next: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def wait(self) -> None:
        if self.per_second is None:
            return
        with self._lock:
            now = self.clock()
            begin = max(self._next, now)
            self._next = begin + 1 / self.per_second
        if begin > now:
            self.sleep(begin - now)


@dataclass(slots=True)
class Requests:
    """Sends the requests of one lookup in one process."""

    join: LookupJoin
    table: OpenLookup
    most_keys: int | None = None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _rate: RateLimit = field(init=False)
    _threads: ThreadPoolExecutor = field(init=False)

    def __post_init__(self) -> None:
        limits = self._limits
        self._rate = RateLimit(limits.per_second, self.clock, self.sleep)
        self._threads = ThreadPoolExecutor(limits.concurrency, thread_name_prefix="strandline-lookup")

    @property
    def _limits(self) -> LookupLimits:
        return self.join.limits

    def answers(self, keys: pl.DataFrame) -> pl.DataFrame:
        """Return the answers for distinct keys; raise LookupUnavailable if the batch must wait for the table.

        After a failure no further request of the batch begins: its keys fail with the same reason.
        """
        failure = _Failure()
        parts = [*keys.iter_slices(min(self._limits.keys_per_request, self.most_keys or keys.height or 1))]
        if len(parts) < 2:
            found = [self._part(part, failure) for part in parts]
        else:
            found = [*self._threads.map(lambda part: self._part(part, failure), parts)]
        if failure.problem is not None and self.join.on_failure is OnFailure.WAIT:
            # Waiting helps here too: someone may repair the table or its permissions.
            known = failure.problem
            raise LookupUnavailable(known.message, detail=known.detail, hint=known.hint)
        return pl.concat(found) if found else failed_answers(keys, "", self.join)

    def _part(self, keys: pl.DataFrame, failure: "_Failure") -> pl.DataFrame:
        if failure.problem is None:
            try:
                return self._asked(keys)
            except LookupFailed as problem:
                failure.problem = problem
        return failed_answers(keys, str(failure.problem), self.join)

    def _asked(self, keys: pl.DataFrame) -> pl.DataFrame:
        """Ask once, and again while the table is unavailable, as long as a failure can be reported in time."""
        named = keys.rename(dict(zip(key_columns(self.join), self.join.table_keys, strict=True)))
        until, pause = self.clock() + REQUEST_SECONDS, _FIRST_PAUSE
        for attempt in range(1, self._limits.attempts + 1):
            self._rate.wait()
            try:
                return answers_of(keys, self.table.rows(named), self.join)
            except LookupUnavailable:
                if attempt == self._limits.attempts or self.clock() + pause > until:
                    raise
            except LookupFailed:
                raise
            except ANY_FAILURE as problem:
                # A client library, or a function of the user.
                raise LookupFailed(f"{self.join.table.name} fails", detail=message_of(problem)) from None
            self.sleep(pause)
            pause *= 2
        raise AssertionError("an attempt returns or raises")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.table.close()


@dataclass(slots=True)
class _Failure:
    """The first failure of a batch."""

    problem: LookupFailed | None = None
