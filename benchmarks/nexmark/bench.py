"""`strandline bench nexmark`: run the Nexmark queries, ours and native Spark alternately, each checked."""

import json
import os
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from benchmarks import turns
from benchmarks.nexmark import native, oracle
from benchmarks.nexmark.events import Log, written
from benchmarks.nexmark.queries import QUERIES
from benchmarks.runs import Run, last_words, scratch, started, weighed
from benchmarks.suite import CORES, Group, Row, Suite
from benchmarks.turns import Asked
from benchmarks.workloads import Contestant

RESULTS: Final = Path(__file__).resolve().parent.parent / "results" / "nexmark.json"
CONTESTANT: Final = "benchmarks.nexmark.contestant"
CHECKED: Final = 3
"""Batches whose output is checked."""
FLOOR, GOAL = 0.9, 1.0
AT_FIRST: Final = ("q1", "q5", "q7", "q11", "q17")
"""One of each kind, for a quick run."""


@dataclass(frozen=True, slots=True)
class Question:
    """One query and its contestant."""

    name: str
    query: str
    contestant: Contestant
    log: Log
    warm_up: int = 4
    warm_seconds: float = 0
    check: bool = True
    cores: int = CORES


def full() -> Suite[Question]:
    """Return the full suite, whose results are kept."""
    return _suite("nexmark", Log(9), warm_up=4, warm_seconds=15, rounds=3)


def quick() -> Suite[Question]:
    """Return a small suite with one round, for a trial; its numbers mean little."""
    return _suite("nexmark-quick", Log(3, 100_000), warm_up=1, warm_seconds=0, rounds=1).held_to(AT_FIRST)


def _suite(name: str, log: Log, *, warm_up: int, warm_seconds: float, rounds: int) -> Suite[Question]:
    """Build the suite with one group per query."""
    groups = []
    for query in QUERIES:
        who = [("ours", Contestant.OURS)]
        if query in native.ASKED:
            who.append(("native", Contestant.NATIVE_ROCKSDB))
        cells = [Question(f"{query}-{each}", query, contestant, log, warm_up, warm_seconds) for each, contestant in who]
        groups.append(Group(query, tuple(cells)))
    rows = [
        Row(
            query,
            f"{query}, {QUERIES[query].title}: native on RocksDB",
            f"{query}-ours",
            f"{query}-native",
            FLOOR,
            GOAL,
        )
        for query in native.ASKED
    ]
    return Suite(name, tuple(groups), rounds, tuple(rows))


def main(asked: Asked) -> int:
    """Measure the requested cells; return 0 if all numbers count, 1 if a run failed."""
    return turns.played("nexmark", asked, quick() if asked.quick else full(), RESULTS, measure, "nexmark-*")


def measure(cell: Question, round_: int, work: Path, *, check: bool) -> Run:
    """Run a cell once; a run that fails or differs from the check is reported as failed."""
    corpora = work / "corpora"
    folder, _ = written(cell.log, corpora)
    beginning = replace(cell.log, batches=min(CHECKED, cell.log.batches))
    checked = written(beginning, corpora)[0] if check else None
    home = scratch(work)
    (home / "order.json").write_text(json.dumps(order_of(cell, folder, checked)))
    load = os.getloadavg()[0]
    samples, code = started(CONTESTANT, home)
    if code != 0:
        return Run(cell.name, round_, load=load, failure=last_words(home, code))
    told = json.loads((home / "run.json").read_text())
    run = replace(
        weighed(cell, round_, told["timed"]["batches"], samples), load=load, failure=miscounted(told["timed"])
    )
    if checked is not None and not run.failure:
        verdict = oracle.judge(checked, QUERIES[cell.query], cell.contestant, f"{home}/said/**/*.parquet")
        wrong = f"{verdict.wrong} rows are wrong of {verdict.cells}, as in {verdict.example}"
        run = replace(run, checked=asdict(verdict), failure="" if verdict.agrees else wrong)
    shutil.rmtree(home, ignore_errors=True)
    return run


def order_of(cell: Question, folder: Path, checked: Path | None = None) -> dict[str, Any]:
    """Build a contestant's order: the log to time and, optionally, its first batches to check."""
    return {
        "query": cell.query,
        "contestant": cell.contestant.value,
        "folder": str(folder),
        "check": None if checked is None else str(checked),
        "warm_up": cell.warm_seconds,
    }


def miscounted(timed: dict[str, Any]) -> str:
    """Check that a timed run, which keeps no output, accounts for all events."""
    counts = timed.get("counts")
    if counts is None:
        return ""
    offered = counts["read"] + counts.get("again", 0)
    known = offered == counts["contributed"] + counts["late"] + counts["filtered"] and counts["dead"] == 0
    return "" if known else f"lost count: {counts}"
