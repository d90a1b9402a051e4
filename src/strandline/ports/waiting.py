"""Define what a job waits for as a value, and collect the current waits of one job.

Sources, sinks, the schema registry and tasks report here: `failed` after each attempt without success, `answered` after
a success. The job's status, log and metrics show the longest wait.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

_log: Final = logging.getLogger("strandline")


@dataclass(frozen=True, slots=True)
class Waiting:
    """A wait of a job for something outside. Times are milliseconds of the wall clock."""

    what: str
    since: int
    tries: int
    next_try: int | None
    """When it is tried again; None if Spark decides."""
    reason: str

    def __str__(self) -> str:
        tries = "1 try" if self.tries == 1 else f"{self.tries} tries"
        after = "" if self.next_try is None else f", next try at {_time(self.next_try)}"
        return f"{self.reason} (waiting for {self.what} since {_time(self.since)}, {tries}{after})"


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%H:%M:%S UTC")


def wall_clock() -> int:
    """Return the time in milliseconds."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class Waits:
    """The current waits of one job, by what is waited for. Any thread may report."""

    changed: Callable[[Waiting | None], None] = lambda _: None
    """Called after every report that changes something, with the longest wait; None when no wait is left."""
    clock: Callable[[], int] = wall_clock
    _waits: dict[str, Waiting] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def failed(self, what: str, reason: str, *, next_in: float | None = None, tries: int | None = None) -> None:
        """Record another attempt without success; `next_in` is the pause in seconds before the next one."""
        now = self.clock()
        with self._lock:
            known = self._waits.get(what)
            at = None if next_in is None else now + round(next_in * 1000)
            first = known or Waiting(what, now, 0, at, reason)
            self._waits[what] = replace(first, tries=tries or first.tries + 1, next_try=at, reason=reason)
        if known is None:
            _log.warning("the job waits for %s: %s", what, reason)
        self.changed(self.longest)

    def answered(self, what: str) -> None:
        """End the wait for something, if there is one."""
        with self._lock:
            ended = self._waits.pop(what, None)
        if ended is not None:
            seconds = (self.clock() - ended.since) / 1000
            _log.warning("the job no longer waits for %s, after %.1f s", what, seconds)
            self.changed(self.longest)

    def cleared(self) -> None:
        """End all waits: the job has ended."""
        with self._lock:
            self._waits.clear()

    @property
    def longest(self) -> Waiting | None:
        """Return the wait that began first; None if the job waits for nothing."""
        with self._lock:
            return min(self._waits.values(), key=lambda each: each.since, default=None)
