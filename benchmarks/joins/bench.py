"""Run `strandline bench joins`: interval joins against Spark's stream-stream join, in turns and judged."""

import json
import os
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from benchmarks import turns
from benchmarks.joins import judge
from benchmarks.joins.events import Streams, written
from benchmarks.runs import FEW, Run, last_words, scratch, started, weighed
from benchmarks.suite import CORES, WARM_SECONDS, Group, Row, Suite
from benchmarks.turns import Asked
from benchmarks.workloads import Contestant

RESULTS: Final = Path(__file__).resolve().parent.parent / "results" / "joins.json"
CONTESTANT: Final = "benchmarks.joins.contestant"
CHECKED: Final = 8
"""Batches whose rows are compared with the judge's: 80 s of event time, so that the first rows have ended."""
WARM_UP: Final = 4
"""Batches that do not count: 40 s of event time, after which as many rows end as are added."""

ROWS: Final = (
    Row("inner", "native interval join, inner, RocksDB, 100 k keys", "ours", "native-rocksdb", 15.0, 40.0),
    Row("memory", "the same on the in-memory store", "ours", "native-memory", 5.0, 12.0),
    Row("outer", "native left outer interval join, RocksDB", "ours-left", "native-left", 15.0, 40.0),
    Row("left-inner", "our left outer join against our inner join", "ours-left", "ours", 0.75, 0.9),
)
REPORTED: Final = (Row("format-3", "native interval join, inner, RocksDB, state format 3", "ours", "native-format-3"),)


@dataclass(frozen=True, slots=True)
class Cell:
    """One contestant over two streams."""

    name: str
    contestant: Contestant
    streams: Streams
    how: str = "inner"
    state_format: int = 2
    warm_up: int = WARM_UP
    warm_seconds: float = WARM_SECONDS
    check: bool = True
    cores: int = CORES


def full() -> Suite[Cell]:
    """Return the suite whose figures are published: 100,000 events of each stream a batch."""
    return _suite("joins", Streams(12), warm_up=WARM_UP, warm_seconds=WARM_SECONDS, rounds=3)


def quick() -> Suite[Cell]:
    """Return a small suite, to try it out; its figures say little."""
    return _suite("joins-quick", Streams(9, 10_000, 1_000, 10_000), warm_up=4, warm_seconds=0, rounds=1)


def _suite(name: str, streams: Streams, *, warm_up: int, warm_seconds: float, rounds: int) -> Suite[Cell]:
    native, memory = Contestant.NATIVE_ROCKSDB, Contestant.NATIVE_MEMORY
    cells = (
        Cell("ours", Contestant.OURS, streams),
        Cell("native-rocksdb", native, streams),
        Cell("native-format-3", native, streams, state_format=3),
        Cell("native-memory", memory, streams),
        Cell("ours-left", Contestant.OURS, streams, "left"),
        Cell("native-left", native, streams, "left"),
    )
    timed = tuple(replace(cell, warm_up=warm_up, warm_seconds=warm_seconds) for cell in cells)
    return Suite(name, (Group("joins", timed),), rounds, ROWS, REPORTED)


def main(asked: Asked) -> int:
    """Measure what is asked; return 0 if every number counts, 1 if a run failed."""
    return turns.played("joins", asked, quick() if asked.quick else full(), RESULTS, measure, "joins-*")


def measure(cell: Cell, round_: int, work: Path, *, check: bool) -> Run:
    """Run a cell once. A run that fails or disagrees with the judge has a failure and no number."""
    corpora = work / "corpora"
    folder, _ = written(cell.streams, corpora)
    beginning = replace(cell.streams, batches=min(CHECKED, cell.streams.batches))
    checked = written(beginning, corpora)[0] if check else None
    home = scratch(work)
    order = {
        "contestant": cell.contestant.value, "how": cell.how, "folder": str(folder),
        "check": None if checked is None else str(checked), "warm_up": cell.warm_seconds,
        "state_format": cell.state_format,
    }  # fmt: skip
    (home / "order.json").write_text(json.dumps(order))
    load = os.getloadavg()[0]
    samples, code = started(CONTESTANT, home)
    if code != 0:
        return Run(cell.name, round_, load=load, failure=last_words(home, code))
    result = json.loads((home / "run.json").read_text())
    run = replace(
        weighed(cell, round_, result["timed"]["batches"], samples), load=load, failure=miscounted(result["timed"])
    )
    if checked is not None and not run.failure:
        run = judged(run, checked, result["checked"], f"{home}/emitted/**/*.parquet", outer=cell.how == "left")
    shutil.rmtree(home, ignore_errors=True)
    return run


def judged(run: Run, folder: Path, checked: dict[str, Any], output: str, *, outer: bool) -> Run:
    """Compare the emitted rows of a checked run with the judge's; add the size of the state."""
    verdict = judge.expect(folder, outer=outer).judge(output)
    with_rows = [batch for batch in checked["batches"] if batch["rows"] > FEW]
    size = sum(state["bytes"] or 0 for state in with_rows[-1]["state"])
    failure = "" if verdict.agrees else f"{verdict.wrong} of {verdict.cells} rows are wrong, as in {verdict.example}"
    return replace(run, checked=asdict(verdict) | {"state_bytes": size}, failure=failure)


def miscounted(timed: dict[str, Any]) -> str:
    """Check our own counts of a timed run: every event takes part, none is late or dead."""
    counts = timed.get("counts")
    if counts is None:
        return ""
    read = counts["read"] + counts.get("again", 0)
    accounted = read == counts["contributed"] and counts["late"] == counts["dead"] == counts["filtered"] == 0
    return "" if accounted else f"lost count: {counts}"
