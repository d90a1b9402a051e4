"""`strandline bench shapes`: many late events, deduplication, keys without windows, against Spark's own operators.

Nexmark's q18 and q19 cover the last version of an event and the highest of a key.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks import turns
from benchmarks.corpus import Corpus
from benchmarks.runs import measure
from benchmarks.suite import ALL_PANES, TUMBLING, WARM_SECONDS, WARM_UP, Cell, Group, Row, Suite
from benchmarks.turns import Asked
from benchmarks.workloads import Contestant, Distinct, Everything, Panes, Workload

RESULTS: Final = Path(__file__).resolve().parent / "results" / "shapes.json"
FOR_EVER: Final = Workload(Everything(), Panes.CHANGES)
ONCE: Final = Workload(Distinct())

ROWS: Final = (
    Row("storm", "native append on RocksDB, three events in ten late", "ours-storm", "native-storm", 0.9, 1.0),
    Row("once", "native dropDuplicates on RocksDB", "ours-once", "native-once", 0.9, 1.0),
    Row(
        "ttl",
        "native group-by without a window on RocksDB, which forgets no key, 100 k keys",
        "ours-ttl",
        "native-ttl",
        0.9,
        1.0,
    ),
    Row(
        "ttl-by-key",
        "transformWithStateInPandas with a time to live, 100 k keys",
        "ours-ttl",
        "by-key-ttl",
        10.0,
        50.0,
    ),
)
REPORTED: Final = (
    Row("storm-calm", "three events in ten late, against one in a hundred", "ours-storm", "ours-calm"),
    Row("storm-panes", "the same with a pane for every change", "ours-storm-panes", "ours-calm-panes"),
)
"""Rows without a floor; not in a quick run."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Size of a run."""

    per_batch: int = 1_000_000
    known: int = 400_000
    """Events per batch for deduplication."""
    batches: int = 9
    warm_up: int = WARM_UP
    warm_seconds: float = WARM_SECONDS
    thin: int = 50


def full() -> Suite[Cell]:
    """Return the full suite, whose results are kept."""
    return _suite("shapes", Sizes(), rounds=3)


def quick() -> Suite[Cell]:
    """Return a small suite with one round, for a trial; its numbers mean little."""
    return _suite("shapes-quick", Sizes(50_000, 50_000, 3, 1, 0, 50), rounds=1)


def _suite(name: str, sizes: Sizes, rounds: int) -> Suite[Cell]:
    of = partial(Corpus, 100_000, sizes.batches, sizes.per_batch)
    calm, storm, thin = of(), of(storm=True), Corpus(100_000, 5, sizes.per_batch, thin=sizes.thin)
    repeated = Corpus(1_000_000, sizes.batches, sizes.known, late=False, repeated=True)
    ours, native = Contestant.OURS, Contestant.NATIVE_ROCKSDB
    cell = partial(Cell, warm_up=sizes.warm_up, warm_seconds=sizes.warm_seconds)
    groups = (
        Group("storm", (
            cell("ours-storm", ours, TUMBLING, storm),
            cell("native-storm", native, TUMBLING, storm),
            cell("ours-calm", ours, TUMBLING, calm),
            cell("ours-storm-panes", ours, ALL_PANES, storm),
            cell("ours-calm-panes", ours, ALL_PANES, calm),
        )),
        Group("once", (
            cell("ours-once", ours, ONCE, repeated),
            cell("native-once", native, ONCE, repeated),
        )),
        Group("ttl", (
            cell("ours-ttl", ours, FOR_EVER, calm),
            cell("native-ttl", native, FOR_EVER, calm),
            # So slow that two warm-up batches are enough.
            Cell("by-key-ttl", Contestant.BY_KEY, FOR_EVER, thin, warm_up=min(2, sizes.warm_up)),
        )),
    )  # fmt: skip
    return Suite(name, groups, rounds, ROWS, REPORTED)


def main(asked: Asked) -> int:
    """Measure the requested cells; return 0 if all numbers count, 1 if a run failed."""
    return turns.played("shapes", asked, quick() if asked.quick else full(), RESULTS, measure)
