"""Run `strandline bench dedupe`: `deduplicate` against Spark's `dropDuplicatesWithinWatermark`, in turns and judged."""

import json
import os
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from benchmarks import turns
from benchmarks.dedupe import judge
from benchmarks.dedupe.events import Resent, written
from benchmarks.runs import FEW, Run, last_words, scratch, started, weighed
from benchmarks.suite import CORES, WARM_SECONDS, Group, Row, Suite
from benchmarks.turns import Asked
from benchmarks.workloads import Contestant

RESULTS: Final = Path(__file__).resolve().parent.parent / "results" / "dedupe.json"
CONTESTANT: Final = "benchmarks.dedupe.contestant"
CHECKED: Final = 8
"""Batches whose rows are compared with the judge's: 80 s of event time, so that the first keys have expired."""
WARM_UP: Final = 7
"""Batches that do not count: 70 s of event time, after which as many keys expire as are added."""
FLOOR, GOAL = 3.0, 6.0

ROWS: Final = (
    Row("rocksdb", "dropDuplicatesWithinWatermark on RocksDB, 2 M live ids", "ours", "native-rocksdb", FLOOR, GOAL),
    Row("memory", "the same on the in-memory store", "ours", "native-memory"),
)
REPORTED: Final = (
    Row("text", "the same on RocksDB, ids of 32 characters", "ours-text", "native-text"),
    Row("text-long", "ids of 32 characters, against our own run with integers", "ours-text", "ours"),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One contestant over one stream."""

    name: str
    contestant: Contestant
    stream: Resent
    warm_up: int = WARM_UP
    warm_seconds: float = WARM_SECONDS
    check: bool = True
    cores: int = CORES


def full() -> Suite[Cell]:
    """Return the suite whose figures are published: two million ids are live, 400,000 events a batch."""
    return _suite("dedupe", Resent(13), warm_up=WARM_UP, warm_seconds=WARM_SECONDS, rounds=3)


def quick() -> Suite[Cell]:
    """Return a small suite, to try it out. Event time passes as fast as in the full one; its figures say little."""
    return _suite("dedupe-quick", Resent(9, 30_000, 3_000), warm_up=4, warm_seconds=0, rounds=1)


def _suite(name: str, stream: Resent, *, warm_up: int, warm_seconds: float, rounds: int) -> Suite[Cell]:
    text = replace(stream, text=True)
    cells = (
        Cell("ours", Contestant.OURS, stream, warm_up, warm_seconds),
        Cell("native-rocksdb", Contestant.NATIVE_ROCKSDB, stream, warm_up, warm_seconds),
        Cell("native-memory", Contestant.NATIVE_MEMORY, stream, warm_up, warm_seconds),
        Cell("ours-text", Contestant.OURS, text, warm_up, warm_seconds),
        Cell("native-text", Contestant.NATIVE_ROCKSDB, text, warm_up, warm_seconds),
    )
    return Suite(name, (Group("dedupe", cells),), rounds, ROWS, REPORTED)


def main(asked: Asked) -> int:
    """Measure what is asked; return 0 if every number counts, 1 if a run failed."""
    return turns.played("dedupe", asked, quick() if asked.quick else full(), RESULTS, measure, "dedupe-*")


def measure(cell: Cell, round_: int, work: Path, *, check: bool) -> Run:
    """Run a cell once. A run that fails or disagrees with the judge has a failure and no number."""
    corpora = work / "corpora"
    folder, _ = written(cell.stream, corpora)
    beginning = replace(cell.stream, batches=min(CHECKED, cell.stream.batches))
    checked = written(beginning, corpora)[0] if check else None
    home = scratch(work)
    (home / "order.json").write_text(json.dumps(order_of(cell, folder, checked)))
    load = os.getloadavg()[0]
    samples, code = started(CONTESTANT, home)
    if code != 0:
        return Run(cell.name, round_, load=load, failure=last_words(home, code))
    result = json.loads((home / "run.json").read_text())
    run = replace(
        weighed(cell, round_, result["timed"]["batches"], samples), load=load, failure=miscounted(result["timed"])
    )
    if checked is not None and not run.failure:
        run = judged(run, checked, result["checked"], f"{home}/emitted/**/*.parquet")
    shutil.rmtree(home, ignore_errors=True)
    return run


def order_of(cell: Cell, folder: Path, checked: Path | None = None) -> dict[str, Any]:
    """Describe a run for the contestant's process."""
    return {
        "contestant": cell.contestant.value,
        "columns": cell.stream.columns,
        "folder": str(folder),
        "check": None if checked is None else str(checked),
        "warm_up": cell.warm_seconds,
    }


def judged(run: Run, folder: Path, checked: dict[str, Any], output: str) -> Run:
    """Compare the emitted rows and the counts of a checked run with the judge's; add the size of the state."""
    expected = judge.expect(folder)
    verdict = expected.judge(output)
    with_rows = [batch for batch in checked["batches"] if batch["rows"] > FEW]
    facts = asdict(verdict) | {
        "live": expected.live,
        "state_bytes": sum(state["bytes"] or 0 for state in with_rows[-1]["state"]),
    }
    failure = "" if verdict.agrees else f"{verdict.wrong} of {verdict.cells} rows are wrong, as in {verdict.example}"
    counts, duplicates = checked.get("counts"), expected.events - expected.rows
    if counts is not None and counts["filtered"] != duplicates:
        failure = failure or f"{counts['filtered']} elements were counted as duplicates, not {duplicates}"
    return replace(run, checked=facts, failure=failure)


def miscounted(timed: dict[str, Any]) -> str:
    """Check our own counts of a timed run: every element is emitted or filtered, none is late or dead."""
    counts = timed.get("counts")
    if counts is None:
        return ""
    read = counts["read"] + counts.get("again", 0)
    accounted = read == counts["contributed"] + counts["filtered"] and counts["late"] == counts["dead"] == 0
    return "" if accounted else f"lost count: {counts}"
