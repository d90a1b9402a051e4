"""`strandline bench windows`: every cell in turns, each run kept as it ends, then the table.

A run that is already in the work folder is not repeated, so that an interrupted benchmark goes on where it was. The
folder is named by the commit and what differs from it: a figure never outlives the code it was measured on.
"""

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import latency, machine, suite
from benchmarks.medians import percentile
from benchmarks.results import Measured, to_results, to_table
from benchmarks.runs import Run, kept, measure, read_run, scratch, started
from benchmarks.suite import Cell, Suite
from benchmarks.workloads import Contestant
from strandline.errors import PlanError

RESULTS = Path(__file__).resolve().parent / "results" / "windows.json"
LATENCY = "latency"


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command was asked to do."""

    quick: bool = False
    only: tuple[str, ...] = ()
    rounds: int | None = None
    work: Path | None = None
    again: bool = False


def work_folder(asked: Asked) -> Path:
    """Where corpora and runs are kept: a cache of the user's, unless another folder is named."""
    if asked.work is not None:
        return asked.work.absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "strandline" / "bench"


def main(asked: Asked) -> int:
    """Measures what is asked; 0 if every number counts, 1 if a run failed."""
    end_with_the_run()
    chosen = suite.quick() if asked.quick else suite.full()
    rounds = asked.rounds or chosen.rounds
    cells = _chosen(chosen, asked)
    work = work_folder(asked)
    home = work / "runs" / f"{machine.commit()}-{chosen.name}"
    if asked.again:
        shutil.rmtree(home, ignore_errors=True)
    runs = list(_measured(chosen, cells, rounds, work, home))
    waits = _waited(chosen, asked.only, rounds, work, home)
    told = to_results(Measured(runs, waits), _command(asked, rounds), _digests(cells, work))
    whole = not asked.quick and not asked.only
    target = RESULTS if whole else home / "windows.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(told, indent=1) + "\n")
    print(f"\n{to_table(told)}\n\nkept in {target}")
    if whole:
        print("make the page anew with: python -m benchmarks.render")
    return 1 if any(run.failure for run in runs) else 0


def end_with_the_run() -> None:
    """A run leads a session of its own and would outlive a harness that is killed; one that is left, it does not."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def _chosen(chosen: Suite, asked: Asked) -> set[str]:
    """The cells to run: those named, those of a named group, both sides of a named row; else all, or in a quick run
    those that a floor depends on."""
    everything = {cell.name for group in chosen.groups for cell in group.cells}
    if not asked.only:
        return {name for row in suite.ROWS for name in (row.cell, row.peer)} if asked.quick else everything
    found: set[str] = set()
    rows = {row.name: {row.cell, row.peer} for row in (*suite.ROWS, *suite.REPORTED)}
    groups = {group.name: {cell.name for cell in group.cells} for group in chosen.groups}
    for name in asked.only:
        places = [places for places in (rows.get(name), groups.get(name)) if places]
        if name in everything:
            found.add(name)
        elif places:
            found |= set.union(*places)
        elif name != LATENCY:
            known = ", ".join(sorted({*everything, *rows, *groups, LATENCY}))
            raise PlanError(f"there is nothing called {name!r} to measure", hint=f"choose of: {known}")
    return found


def _measured(chosen: Suite, cells: set[str], rounds: int, work: Path, home: Path) -> Iterator[Run]:
    """Each group in turns: every cell once, then all again, back and forth."""
    for group in chosen.groups:
        asked = [cell for cell in group.cells if cell.name in cells]
        for round_ in range(min(rounds, group.rounds)):
            for cell in asked if round_ % 2 == 0 else asked[::-1]:
                yield _run(cell, round_, work, home)


def _run(cell: Cell, round_: int, work: Path, home: Path) -> Run:
    path = home / f"{cell.name}-{round_}.json"
    run = read_run(path) if path.exists() else kept(measure(cell, round_, work, check=cell.check and round_ == 0), path)
    print(_line(run), flush=True)
    return run


def _line(run: Run) -> str:
    if run.failure:
        return f"  {run.cell:<16} round {run.round + 1}: FAILED, {run.failure}"
    speed = f"{run.per_cpu_second / 1000:9,.1f} k events per CPU-second {run.per_second / 1000:9,.1f} k a second"
    checked = f"  {run.checked['cells']} windows checked" if run.checked else ""
    return f"  {run.cell:<16} round {run.round + 1}: {speed}  {run.peak_bytes / 2**30:.1f} GB{checked}"


def _waited(chosen: Suite, only: Sequence[str], rounds: int, work: Path, home: Path) -> list[dict[str, Any]]:
    """The open-loop runs, native and ours in turns."""
    if only and LATENCY not in only:
        return []
    found = []
    for round_ in range(min(rounds, 2)):
        for contestant in (Contestant.NATIVE_ROCKSDB, Contestant.OURS):
            path = home / f"latency-{contestant}-{round_}.json"
            if not path.exists():
                told = _wait(chosen, contestant, work) | {"contestant": contestant.value, "round": round_}
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(told, indent=1) + "\n")
            told = json.loads(path.read_text())
            print(
                f"  latency {contestant:<16} round {round_ + 1}: {told.get('failure') or _milliseconds(told)}",
                flush=True,
            )
            found.append(told)
    return found


def _wait(chosen: Suite, contestant: Contestant, work: Path) -> dict[str, Any]:
    home = scratch(work)
    order = {"contestant": contestant.value, "seconds": chosen.latency.seconds}
    (home / "order.json").write_text(json.dumps(order))
    _, code = started("benchmarks.latency", home)
    if code != 0:
        return {"failure": f"ended with code {code}: {(home / 'output.txt').read_text(errors='replace')[-300:]}"}
    told = json.loads((home / "run.json").read_text())
    shutil.rmtree(home, ignore_errors=True)
    waits = latency.latencies(told, chosen.latency.warm_up)
    if not waits:
        return {"failure": "not a single pane was seen after the warm-up"}
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    return {name: percentile(waits, share) for name, share in shares.items()} | {"panes": len(waits)}


def _milliseconds(told: dict[str, Any]) -> str:
    return ", ".join(f"{name} {told[name]:.0f} ms" for name in ("p50", "p95", "p99"))


def _command(asked: Asked, rounds: int) -> str:
    words = ["strandline bench windows", "--quick" if asked.quick else "", *(f"--only {name}" for name in asked.only)]
    if asked.rounds:
        words.append(f"--rounds {rounds}")
    return " ".join(word for word in words if word)


def _digests(cells: set[str], work: Path) -> dict[str, str]:
    """The SHA-256 of every corpus that was used."""
    found = {}
    for path in sorted((work / "corpora").glob("*/_corpus.json")):
        found[path.parent.name] = json.loads(path.read_text())["sha256"]
    return found if cells else {}
