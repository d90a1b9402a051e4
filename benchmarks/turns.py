"""Run all cells alternately and store each run as it ends; shared by all benchmarks with contestants.

A stored run in the work folder is not repeated, so an interrupted benchmark resumes. The folder is named by the commit
and local changes, so results never outlive the measured code.
"""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from benchmarks import machine
from benchmarks.medians import spread
from benchmarks.results import Measured, to_results, to_table
from benchmarks.runs import Run, kept, read_run
from benchmarks.suite import OneCell, Row, Suite
from strandline.errors import PlanError

STEADY: Final = 0.15
"""Relative interquartile range above which a ratio is measured again."""
MORE: Final = 2
"""Maximum additional rounds."""

Cell_contra = TypeVar("Cell_contra", contravariant=True)


class Measure(Protocol[Cell_contra]):
    """Callable that runs a cell in a round, with or without check."""

    def __call__(self, cell: Cell_contra, round_: int, work: Path, *, check: bool) -> Run: ...


@dataclass(frozen=True, slots=True)
class Asked:
    """Options of the command."""

    quick: bool = False
    only: tuple[str, ...] = ()
    rounds: int | None = None
    work: Path | None = None
    again: bool = False

    @property
    def is_whole(self) -> bool:
        """Return whether its results are the ones to keep."""
        return not self.quick and not self.only


def work_folder(asked: Asked) -> Path:
    """Return the folder of corpora and runs: the user's cache, unless given."""
    if asked.work is not None:
        return asked.work.absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "strandline" / "bench"


def runs_folder(asked: Asked, suite: Suite[Any]) -> Path:
    """Return the folder of this commit's runs, emptied on request."""
    home = work_folder(asked) / "runs" / f"{machine.commit()}-{suite.name}"
    if asked.again:
        shutil.rmtree(home, ignore_errors=True)
    return home


def end_with_the_run() -> None:
    """End running sessions when the harness is terminated; they would outlive it otherwise."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def chosen_cells(suite: Suite[Any], asked: Asked, others: Collection[str] = ()) -> set[str]:
    """Return the cells to run: named ones, those of a named group or row; else all, or in a quick run those of rows
    with bounds. `others` may be named too, and are not cells."""
    everything = {cell.name for group in suite.groups for cell in group.cells}
    if not asked.only:
        return {name for row in suite.rows for name in row.cells} if asked.quick else everything
    found: set[str] = set()
    rows = {row.name: {*row.cells} for row in (*suite.rows, *suite.reported)}
    groups = {group.name: {cell.name for cell in group.cells} for group in suite.groups}
    for name in asked.only:
        # A row often has its peer's name; naming it selects the comparison.
        meant = {name} & everything | rows.get(name, set()) | groups.get(name, set())
        found |= meant
        if not meant and name not in others:
            known = ", ".join(sorted({*everything, *rows, *groups, *others}))
            raise PlanError(f"there is nothing called {name!r} to measure", hint=f"choose of: {known}")
    return found


def in_turns(
    suite: Suite[OneCell], cells: set[str], rounds: int, home: Path, measure: Callable[[OneCell, int, bool], Run]
) -> Iterator[Run]:
    """Run each group alternately: all cells once, then again in reverse order. Cells of
    a ratio that varies too much are measured again, up to a number of rounds."""
    for group in suite.groups:
        asked = [cell for cell in group.cells if cell.name in cells]
        planned, made = min(rounds, group.rounds), list[Run]()
        for round_ in range(planned + (MORE if planned > 1 else 0)):
            doubtful = {cell.name for cell in asked} if round_ < planned else unsteady(made, suite.rows)
            mine = [cell for cell in asked if cell.name in doubtful]
            for cell in mine if round_ % 2 == 0 else mine[::-1]:
                path = home / f"{cell.name}-{round_}.json"
                check = cell.check and round_ == 0
                run = read_run(path) if path.exists() else kept(measure(cell, round_, check), path)
                print(_line(run), flush=True)
                made.append(run)
                yield run


def unsteady(runs: Sequence[Run], rows: Sequence[Row]) -> set[str]:
    """Return the cells of rows whose ratios spread too widely."""
    measured, found = Measured(runs), set[str]()
    for row in rows:
        known = measured.ratios(row)
        if known and (apart := spread(known)).iqr > STEADY * apart.median:
            found |= {*row.cells}
    return found


def played(
    name: str,
    asked: Asked,
    suite: Suite[OneCell],
    target: Path,
    measure: Measure[OneCell],
    corpora: str = "*keys-*",
) -> int:
    """Run a suite; return 0 if all numbers count, 1 if a run failed."""
    end_with_the_run()
    work, home = work_folder(asked), runs_folder(asked, suite)

    def run(cell: OneCell, round_: int, check: bool) -> Run:
        return measure(cell, round_, work, check=check)

    runs = list(in_turns(suite, chosen_cells(suite, asked), asked.rounds or suite.rounds, home, run))
    told = to_results(Measured(runs), suite, command_of(name, asked), digests(work, corpora))
    publish(told, asked, target, home)
    return 1 if any(run.failure for run in runs) else 0


def _line(run: Run) -> str:
    if run.failure:
        return f"  {run.cell:<16} round {run.round + 1}: FAILED, {run.failure}"
    speed = f"{run.per_cpu_second / 1000:9,.1f} k events per CPU-second {run.per_second / 1000:9,.1f} k a second"
    checked = f"  {run.checked['cells']} windows checked" if run.checked else ""
    return f"  {run.cell:<16} round {run.round + 1}: {speed}  {run.peak_bytes / 2**30:.1f} GB{checked}"


def command_of(name: str, asked: Asked) -> str:
    """Return the command line."""
    words = [f"strandline bench {name}", "--quick" if asked.quick else "", *(f"--only {each}" for each in asked.only)]
    if asked.rounds:
        words.append(f"--rounds {asked.rounds}")
    return " ".join(word for word in words if word)


def digests(work: Path, names: str = "*keys-*") -> dict[str, str]:
    """Return the SHA-256 of each corpus with such a name."""
    found = {}
    for path in sorted((work / "corpora").glob(f"{names}/_corpus.json")):
        found[path.parent.name] = json.loads(path.read_text())["sha256"]
    return found


def publish(told: dict[str, Any], asked: Asked, target: Path, home: Path) -> None:
    """Print and store the results: full suites for the page, others beside their runs."""
    kept_in = target if asked.is_whole else home / target.name
    kept_in.parent.mkdir(parents=True, exist_ok=True)
    kept_in.write_text(json.dumps(told, indent=1) + "\n")
    print(f"\n{to_table(told)}\n\nkept in {kept_in}")
    if asked.quick:
        print("so small a run tells whether answers are right; how fast they come, only the whole one does")
    if asked.is_whole:
        print("make the page anew with: python -m benchmarks.render")
