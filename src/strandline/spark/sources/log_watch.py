"""Check that the logs that a job reads are still those that it began with, at its start and while it runs."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from strandline.checkpoint.job_folder import Checkpoint, write_durably
from strandline.checkpoint.log_identities import LOGS, as_text, read_identities
from strandline.errors import LogReplaced, RunError, SetupError, StrandlineError
from strandline.plan.stages import Stages
from strandline.ports.sources import IdentifiedSource

CHECK_SECONDS: Final = 5.0
"""The pause between two checks of a running job. A log that is made anew is told after this time at most."""
_APPEARS_WITHIN_SECONDS: Final = 3.0
"""How long a log may be unknown that was just created."""
_GONE_AFTER_CHECKS: Final = 3
"""How many checks in a row must miss a log of a running job: a broker that starts again may not know it at first."""
_log: Final = logging.getLogger("strandline")


class _Missing(LogReplaced):
    """A log that the job has read from does not exist, or is not known yet."""


class LogWatch:
    """Compares the identities of logs with those in the job's folder. The check runs beside the batches."""

    def __init__(self, home: Checkpoint, stages: Stages) -> None:
        self._home = home
        self._sources = {
            number: scan.source for number, scan in enumerate(stages.scans) if isinstance(scan.source, IdentifiedSource)
        }
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self.problem: StrandlineError | None = None

    @classmethod
    def begun(cls, home: Checkpoint, stages: Stages) -> "LogWatch":
        """Return a watch whose first check has passed."""
        watch = cls(home, stages)
        watch.begin()
        return watch

    def begin(self) -> None:
        """Compare with the job's folder and store what is new there. Called before a job reads.

        Raises LogReplaced if a log is another one, and SetupError if it does not exist.
        """
        end = time.monotonic() + _APPEARS_WITHIN_SECONDS
        while True:
            try:
                self.check(starting=True)
                return
            except (SetupError, _Missing):
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)

    def check(self, *, starting: bool = False) -> None:
        """Ask every source for the identities of its logs; a source that does not answer is asked the next time."""
        with self._lock:
            known = read_identities(self._home.folder)
            # Nothing was read from the logs of a job without a batch.
            held = {} if starting and self._home.newest() is None and not self._home.all_done.exists() else known
            found = dict(known)
            for number, source in self._sources.items():
                now = source.identities()
                if now is None:
                    continue
                before = held.get(number, {})
                _refuse_other(before, now, self._home.folder)
                if starting:
                    _refuse_missing(now)
                found[number] = {**before, **{name: each for name, each in now.items() if each}}
            if found != known and any(found.values()):
                write_durably(self._home.folder / LOGS, as_text(found))

    def watch(self, fail: Callable[[StrandlineError], None]) -> None:
        """Check again and again in a thread, until the job ends; call `fail` with an error that must end it."""
        if self._sources:
            threading.Thread(target=self._run, args=[fail], name="strandline-logs", daemon=True).start()

    def _run(self, fail: Callable[[StrandlineError], None]) -> None:
        missed = 0
        while not self._ended.wait(CHECK_SECONDS):
            try:
                self.check()
                missed = 0
            except LogReplaced as problem:
                missed += 1
                if isinstance(problem, _Missing) and missed < _GONE_AFTER_CHECKS:
                    continue
                self.problem = problem
                fail(problem)
                return
            except RunError as problem:
                _log.warning("the logs of the job's sources were not checked: %s", problem)

    def refuse_replaced(self) -> None:
        """Raise what the last check has found. Called before rows reach a sink; asks nobody."""
        if self.problem is not None:
            raise self.problem

    def end(self) -> None:
        """Stop checking."""
        self._ended.set()


def _refuse_other(before: Mapping[str, str], now: Mapping[str, str | None], folder: Path) -> None:
    for name, known in before.items():
        found = now.get(name, known)
        if found is None:
            raise _Missing(
                f"{name} no longer exists, and the job has read from it",
                hint="restore it, or start over with a new checkpoint folder",
            )
        if found != known:
            raise LogReplaced(
                f"{name} was deleted and made anew: the offsets of this job are those of another log",
                detail=f"its identity was {known}, and is {found}",
                hint="start over with a new checkpoint folder, and starting= for the place in the new log; if it holds "
                f"the same records at the same offsets, delete {folder / LOGS}",
            )


def _refuse_missing(now: Mapping[str, str | None]) -> None:
    for name, found in now.items():
        if found is None:
            raise SetupError(f"{name} does not exist", hint="create it, or check its name")
