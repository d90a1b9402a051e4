"""`strandline bench bounded`: run a bounded folder as one batch, against our stream, a batch job, Polars and DuckDB."""

from pathlib import Path
from typing import Final

from benchmarks import turns
from benchmarks.corpus import Corpus
from benchmarks.runs import measure
from benchmarks.suite import TUMBLING, Cell, Group, Row, Suite
from benchmarks.turns import Asked
from benchmarks.workloads import Contestant

RESULTS = Path(__file__).resolve().parent / "results" / "bounded.json"

ROWS: Final = (
    Row("stream", "our own stream over the same files, 100 k keys", "at-once", "stream", 1.0, 1.5),
    Row("plain", "spark.read and groupBy, a batch job, 100 k keys", "at-once", "plain", 0.5, 0.8),
)


REPORTED: Final = (
    Row("polars", "Polars alone over the same files: the distance to the metal", "at-once", "polars"),
    Row("duckdb", "DuckDB alone over the same files", "at-once", "duckdb"),
    Row("stream-polars", "Polars alone, against our own stream", "stream", "polars"),
)
"""Rows without a floor: the machine's upper bound."""


def full() -> Suite[Cell]:
    """Return the full suite, whose results are kept: ten million events."""
    return _suite("bounded", Corpus(100_000, 10, 1_000_000, late=False), warm_seconds=30, rounds=3)


def quick() -> Suite[Cell]:
    """Return a small suite with one round, for a trial; its numbers mean little."""
    return _suite("bounded-quick", Corpus(10_000, 4, 50_000, late=False), warm_seconds=0, rounds=1)


def _suite(name: str, corpus: Corpus, *, warm_seconds: float, rounds: int) -> Suite[Cell]:
    """Build the suite. No event is late, so all results agree; the whole run counts, since it ends."""
    who = (
        ("at-once", Contestant.AT_ONCE), ("stream", Contestant.OURS), ("plain", Contestant.PLAIN),
        ("polars", Contestant.POLARS), ("duckdb", Contestant.DUCKDB),
    )  # fmt: skip
    cells = tuple(
        Cell(each, contestant, TUMBLING, corpus, warm_up=0, warm_seconds=warm_seconds) for each, contestant in who
    )
    return Suite(name, (Group("bounded", cells),), rounds, ROWS, REPORTED)


def main(asked: Asked) -> int:
    """Measure the requested cells; return 0 if all numbers count, 1 if a run failed."""
    return turns.played("bounded", asked, quick() if asked.quick else full(), RESULTS, measure)
