"""`strandline bench scale`: measure the cost per event as events, keys, overlaps, partitions and cores grow."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks import turns
from benchmarks.corpus import Corpus
from benchmarks.runs import measure
from benchmarks.suite import TUMBLING, WARM_SECONDS, WARM_UP, Cell, Group, Row, Suite
from benchmarks.turns import Asked
from benchmarks.workloads import Contestant, Sliding, Tumbling, Workload

RESULTS: Final = Path(__file__).resolve().parent / "results" / "scale.json"

KEYS: Final = {"keys-1k": 1_000, "keys-10k": 10_000, "keys-1m": 1_000_000}
METAL: Final = {
    "polars-1k": (Contestant.POLARS, 1_000),
    "polars-1m": (Contestant.POLARS, 1_000_000),
    "duckdb-1k": (Contestant.DUCKDB, 1_000),
    "duckdb-1m": (Contestant.DUCKDB, 1_000_000),
}
"""Engines that only group by key and window, for comparison."""
OVERLAPS: Final = {"overlaps-1": 60, "overlaps-6": 10, "overlaps-60": 1}
"""Slides of one-minute windows, in seconds."""
HELD: Final = {"state-1m": 1_000_000, "state-10m": 10_000_000}
"""Keys whose windows stay open for an hour, so that all are held."""
PARTITIONS: Final = {"partitions-1": 1, "partitions-4": 4, "partitions-8": 8, "partitions-16": 16}

NATIVE: Final = Contestant.NATIVE_ROCKSDB
"""Gain of a second core for native Spark."""
MACHINE: Final = Contestant.POLARS_EACH
"""Its upper bound, by plain Polars."""

ROWS: Final = (
    Row("events", "an event's cost, 10 times the events", "base", "events-10x", 1.2, 1.05, lower_is_better=True),
    Row("keys", "an event's cost, 1 k → 1 M keys", "keys-1k", "keys-1m", 2.5, 1.5, lower_is_better=True),
    Row("overlaps", "an event's cost, 1 → 60 overlaps", "overlaps-1", "overlaps-60", 3.0, 1.5, lower_is_better=True),
    Row("partitions", "an event's cost, 2 → 8 partitions", "base", "partitions-8", 2.0, 1.3, lower_is_better=True),
    # 1.5 and 1.7 relative to two whole cores: decision 0043.
    Row("cores", "two cores against one, of what they give plain programs that share nothing", "base", "cores-1",
        0.75, 0.85, by_wall=True, share_of=("machine", "machine-cores-1")),
)  # fmt: skip
REPORTED: Final = (
    Row("cores-alone", "events a second on two cores, against one", "base", "cores-1", by_wall=True),
    Row("keys-10k", "an event's cost, 1 k → 10 k keys", "keys-1k", "keys-10k", lower_is_better=True),
    Row("keys-100k", "an event's cost, 1 k → 100 k keys", "keys-1k", "base", lower_is_better=True),
    Row("keys-polars", "1 k → 1 M keys by plain Polars", "polars-1k", "polars-1m", lower_is_better=True),
    Row("keys-duckdb", "1 k → 1 M keys by DuckDB", "duckdb-1k", "duckdb-1m", lower_is_better=True),
    Row(
        "state",
        "an event's cost, 1 M → 10 M keys that are held for an hour",
        "state-1m",
        "state-10m",
        lower_is_better=True,
    ),
    Row("overlaps-6", "an event's cost, 1 → 6 overlaps", "overlaps-1", "overlaps-6", lower_is_better=True),
    Row(
        "large",
        "events a second on two cores, against one, 4 times the events in a batch",
        "large",
        "large-cores-1",
        by_wall=True,
    ),
    Row("native", "the same in native Spark, two cores against one", "native", "native-cores-1", by_wall=True),
    Row("machine", "the same by plain Polars, a program on each core", "machine", "machine-cores-1", by_wall=True),
    Row("partitions-1", "an event's cost, 2 partitions → 1", "base", "partitions-1", lower_is_better=True),
    Row("partitions-4", "an event's cost, 2 → 4 partitions", "base", "partitions-4", lower_is_better=True),
    Row("partitions-16", "an event's cost, 2 → 16 partitions", "base", "partitions-16", lower_is_better=True),
)
"""Intermediate values; not in a quick run."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Size of a run."""

    per_batch: int = 1_000_000
    batches: int = 3
    """Counted batches."""
    warm_up: int = WARM_UP
    warm_seconds: float = WARM_SECONDS
    slid: tuple[int, int] = (10_000, 100_000)
    """Keys and events per batch of overlapping windows."""


def full() -> Suite[Cell]:
    """Return the full suite, whose results are kept."""
    return _suite("scale", Sizes(), rounds=3)


def quick() -> Suite[Cell]:
    """Return a small suite with one round, for a trial; its numbers mean little."""
    return _suite("scale-quick", Sizes(50_000, 2, 1, 0, (1_000, 20_000)), rounds=1)


def _suite(name: str, sizes: Sizes, rounds: int) -> Suite[Cell]:
    batches = sizes.warm_up + sizes.batches
    of = partial(Corpus, batches=batches, per_batch=sizes.per_batch)
    cell = partial(Cell, contestant=Contestant.OURS, warm_up=sizes.warm_up, warm_seconds=sizes.warm_seconds)
    usual = of(100_000)
    longer = Corpus(100_000, sizes.warm_up + 10 * sizes.batches, sizes.per_batch)
    large = of(100_000, per_batch=4 * sizes.per_batch)
    base = cell(name="base", workload=TUMBLING, corpus=usual)
    slid = Corpus(sizes.slid[0], batches, sizes.slid[1])
    groups = (
        Group("base", (
            # Compared by wall clock, so one right after the other.
            base,
            cell(name="cores-1", workload=TUMBLING, corpus=usual, cores=1),
            cell(name="native", workload=TUMBLING, corpus=usual, contestant=NATIVE),
            cell(name="native-cores-1", workload=TUMBLING, corpus=usual, contestant=NATIVE, cores=1),
            cell(name="machine", workload=TUMBLING, corpus=usual, contestant=MACHINE),
            cell(name="machine-cores-1", workload=TUMBLING, corpus=usual, contestant=MACHINE, cores=1),
            cell(name="large", workload=TUMBLING, corpus=large),
            cell(name="large-cores-1", workload=TUMBLING, corpus=large, cores=1),
            cell(name="events-10x", workload=TUMBLING, corpus=longer),
            *(cell(name=each, workload=TUMBLING, corpus=usual, partitions=many) for each, many in PARTITIONS.items()),
        )),
        Group("keys", (
            *(cell(name=each, workload=TUMBLING, corpus=of(keys)) for each, keys in KEYS.items()),
            *(cell(name=each, workload=TUMBLING, corpus=of(keys), contestant=by) for each, (by, keys) in METAL.items()),
        )),
        Group("state", tuple(
            cell(name=each, workload=Workload(Tumbling(3_600)), corpus=of(keys)) for each, keys in HELD.items()
        )),
        Group("overlaps", tuple(
            cell(name=each, workload=Workload(Tumbling(60) if every == 60 else Sliding(60, every)), corpus=slid)
            for each, every in OVERLAPS.items()
        )),
    )  # fmt: skip
    return Suite(name, groups, rounds, ROWS, REPORTED)


def main(asked: Asked) -> int:
    """Measure the requested cells; return 0 if all numbers count, 1 if a run failed."""
    return turns.played("scale", asked, quick() if asked.quick else full(), RESULTS, measure)
