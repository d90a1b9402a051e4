"""Watch the jobs that are shown, each under a short id, by polling their folders."""

import hashlib
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from strandline.dashboard.api_types import JobCard, Sign
from strandline.dashboard.golden import golden_five, job_verdict, signs
from strandline.errors import SetupError, StateError, StrandlineError
from strandline.model.histograms import Histogram
from strandline.observe.metrics.history import History, JobState, JobView
from strandline.observe.metrics.metrics import BatchMetrics
from strandline.observe.metrics.tables import FILE

SHORT_HISTORY: Final = 40
"""Recent batches per job for sparklines and verdicts."""
LONG_HISTORY: Final = 300
VIEWED_JOBS: Final = 8
"""The number of jobs with a long batch history in memory: those that are currently viewed."""
FIND_SECONDS: Final = 5.0
RECHECK_SECONDS: Final = 3.0
"""Seconds after which a job with an unchanged file is checked again: it may have died."""


class NoSuchJob(SetupError):
    """Raised when no shown job has the id."""


class Batches:
    """The last batches of a job; only new ones are read from its file."""

    def __init__(self, most: int, reduced: Callable[[BatchMetrics], BatchMetrics] = lambda batch: batch) -> None:
        self._most, self._reduce = most, reduced
        self._known: list[tuple[int, BatchMetrics]] = []

    def read(self, history: History) -> list[BatchMetrics]:
        # The last point is read again: a later batch may have been folded into it.
        since = self._known[-1][0] - 1 if self._known else 0
        try:
            times = [point.at for point in history.points(since=since, limit=self._most)]
            batches = history.batches(since=since, until=times[-1], limit=self._most) if times else []
        except (ValueError, KeyError, TypeError, AttributeError, zlib.error) as problem:
            raise StateError(
                f"the numbers in {history.folder} cannot be read",
                detail=f"{type(problem).__name__}: {problem}",
                hint="the job does not need them: delete metrics.db, and the job starts a new file",
            ) from None
        fresh = [*zip(times, batches, strict=False)]
        recent = [*(each for each in self._known if each[0] <= since), *fresh][-self._most :]
        self._known = [(at, self._reduce(batch)) for at, batch in recent]
        return [batch for _, batch in recent]


def for_verdicts(batch: BatchMetrics) -> BatchMetrics:
    """Remove what verdicts need of the last batch only: with 200 jobs it takes much memory."""
    if not batch.partitions and not batch.lateness.counts:
        return batch
    steps = tuple(replace(step, groups=()) for step in batch.steps)
    return replace(batch, partitions=(), hot=(), lateness=Histogram(), busy={}, steps=steps)


class WatchedJob:
    """One job: its reader, its recent batches, and its card.

    Its file is closed after every poll: 200 open ones take 50 MB, and opening one takes less than a millisecond.
    """

    def __init__(self, id_: str, folder: Path) -> None:
        self.id, self.folder = id_, folder
        self.history = History(folder)
        self.lock = threading.Lock()
        self.view: JobView | None = None
        self.latest: BatchMetrics | None = None
        self.card: JobCard | None = None
        self.signs: tuple[Sign, ...] = ()
        self._batches = Batches(SHORT_HISTORY, for_verdicts)
        self._polled_at = 0.0
        self._stamp: tuple[int, ...] = ()

    def look(self, now: int) -> bool:
        """Read what is new; return whether anything changed."""
        stamp = _stamp(self.folder)
        if stamp == self._stamp and self.view is not None and self._is_unchanged(self.view, now):
            return False
        with self.lock, self.history:
            self._polled_at, self._stamp = time.monotonic(), stamp
            view, recent, alarms = self.history.job(now), self._batches.read(self.history), self.history.alarms()
        self.latest = recent[-1] if recent else None
        self.signs = signs(recent, alive=view.state.is_alive)
        verdict, sentence = job_verdict(view, self.signs, alarms)
        seen = self.latest.at if self.latest is not None else view.heartbeat
        batch = None if self.latest is None else self.latest.batch
        five = golden_five(recent, self.signs)
        card = JobCard(self.id, view.name, str(self.folder), view.state.value, verdict, sentence, seen, batch, five)
        changed = card != self.card
        self.view, self.card = view, card
        return changed

    def _is_unchanged(self, view: JobView, now: int) -> bool:
        """Whether a job with an unchanged file is still in the same state, and has not died."""
        if not view.state.is_alive or time.monotonic() - self._polled_at < RECHECK_SECONDS:
            return True
        self._polled_at = time.monotonic()
        with self.lock, self.history:
            return self.history.job(now).state is view.state

    def show_unreadable(self, problem: StrandlineError) -> bool:
        """Show the reason on the card: its numbers are corrupt, or of another version."""
        view = JobView(str(self.folder), self.folder.name, JobState.UNKNOWN, problem.message)
        card = JobCard(
            self.id, view.name, str(self.folder), view.state.value, "bad", str(problem), None, None, golden_five([], ())
        )
        changed = card != self.card
        self.view, self.card = view, card
        return changed

    def close(self) -> None:
        with self.lock:
            self.history.close()


class Jobs:
    """All jobs in some places. One thread calls `look`; any thread may call the rest."""

    def __init__(self, places: Callable[[], Iterable[Path]]) -> None:
        self._places = places
        self._watched: dict[str, WatchedJob] = {}
        self._found_at = -FIND_SECONDS
        self._recent: OrderedDict[str, Batches] = OrderedDict()
        self._lock = threading.Lock()

    def look(self) -> list[str]:
        """Find jobs and read what is new; return the ids of jobs that changed, appeared or vanished."""
        now, changed = time.time_ns() // 1_000_000, []
        if time.monotonic() - self._found_at >= FIND_SECONDS:
            changed += self._find()
        for job in [*self._watched.values()]:
            try:
                changed += [job.id] if job.look(now) else []
            except StrandlineError as problem:
                changed += [job.id] if job.show_unreadable(problem) else []
            except Exception as problem:  # noqa: BLE001 - one damaged file must not end the feed of all jobs
                damaged = StateError(
                    f"the numbers in {job.folder} cannot be shown", detail=f"{type(problem).__name__}: {problem}",
                    hint="the job does not need them: delete metrics.db, and the job starts a new file",
                )  # fmt: skip
                changed += [job.id] if job.show_unreadable(damaged) else []
        return [*dict.fromkeys(changed)]

    def _find(self) -> list[str]:
        self._found_at = time.monotonic()
        found = {id_of(folder): folder for folder in self._places()}
        removed = [id_ for id_ in self._watched if id_ not in found]
        for id_ in removed:
            self._watched.pop(id_).close()
        added = [id_ for id_ in found if id_ not in self._watched]
        for id_ in added:
            try:
                self._watched = {**self._watched, id_: WatchedJob(id_, found[id_])}
            except (SetupError, OSError):
                continue
        return removed + added

    def cards(self) -> Sequence[JobCard]:
        """Every job that was read, those with problems first."""
        known = [job.card for job in [*self._watched.values()] if job.card is not None]
        order = {"bad": 0, "warn": 1, "ok": 2, "off": 3}
        return sorted(known, key=lambda card: (order[card.verdict], card.name.lower(), card.id))

    def job(self, id_: str) -> WatchedJob:
        job = self._watched.get(id_)
        if job is None or job.card is None or job.view is None:
            raise NoSuchJob("there is no such job", hint="it may have been deleted; see the page of all jobs")
        return job

    @contextmanager
    def reading(self, id_: str) -> Iterator[History]:
        """A job's reader, for one thread at a time."""
        job = self.job(id_)
        with job.lock, job.history:
            yield job.history

    def recent(self, id_: str) -> list[BatchMetrics]:
        """The last batches with all their numbers; only new ones are read from the file."""
        with self.reading(id_) as history, self._lock:
            known = self._recent.pop(id_, None) or Batches(LONG_HISTORY)
            self._recent[id_] = known
            while len(self._recent) > VIEWED_JOBS:
                self._recent.popitem(last=False)
            return known.read(history)

    def close(self) -> None:
        for job in self._watched.values():
            job.close()


def id_of(folder: Path) -> str:
    """A short stable id that does not reveal the folder."""
    return hashlib.sha256(str(folder.absolute()).encode()).hexdigest()[:12]


def _stamp(folder: Path) -> tuple[int, ...]:
    """A value that changes whenever a job writes its numbers."""
    found: list[int] = []
    for name in (FILE, f"{FILE}-wal"):
        try:
            facts = (folder / name).stat()
            found += [facts.st_mtime_ns, facts.st_size]
        except OSError:
            found += [0, 0]
    return tuple(found)
