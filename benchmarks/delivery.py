"""`strandline bench delivery`: exactly once against at least once per sink; upserts against hand-written JDBC."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks import deliveries, turns, upserts
from benchmarks.corpus import Corpus
from benchmarks.deliveries import Pair
from benchmarks.results import Measured, to_results
from benchmarks.runs import Run, kept, read_run
from benchmarks.sessions import JARS
from benchmarks.stores import NAMES, Stores
from benchmarks.suite import Cell, Row, Suite
from benchmarks.turns import Asked
from benchmarks.upserts import Upserts
from strandline.errors import PlanError
from strandline.spark.launch.jars import fetch_jars, pinned

RESULTS: Final = Path(__file__).resolve().parent / "results" / "throughput-of-delivery.json"
UPSERT: Final = "upsert"
TITLES: Final = {"sqlite": "SQLite", "postgres": "PostgreSQL", "kafka": "Kafka", "valkey": "Valkey"}


@dataclass(frozen=True, slots=True)
class Plan:
    """All that is measured."""

    name: str
    large: int
    small: int
    batches: tuple[int, int]
    """Batches of the large and the small size. Even numbers: with alternating order, each side gets two batches in a
    row."""
    warm_up: tuple[int, int]
    upserts: Upserts
    rounds: int

    @property
    def pairs(self) -> tuple[Pair, ...]:
        kinds = zip((self.large, self.small), self.batches, self.warm_up, strict=True)
        return tuple(Pair(sink, *kind) for kind in kinds for sink in NAMES)

    @property
    def suite(self) -> Suite[Cell]:
        """Return the table rows; small batches and Valkey have no floor."""
        lines = [_row(pair, bound=pair.rows == self.large and pair.sink != "valkey") for pair in self.pairs]
        mine, theirs = upserts.CELLS
        by_hand = Row(UPSERT, "upserts into PostgreSQL: foreachBatch and JDBC, by hand", mine, theirs, 2.0, 5.0)
        rows = (*(row for row in lines if row.floor is not None), by_hand)
        return Suite(self.name, (), self.rounds, rows, tuple(row for row in lines if row.floor is None))


def _row(pair: Pair, *, bound: bool) -> Row:
    against = f"{TITLES[pair.sink]}, exactly once: at least once, {pair.rows:,} rows a batch"
    floor, goal = (0.8, 0.95) if bound else (None, None)
    return Row(pair.name, against, *pair.cells, floor=floor, goal=goal)


def full() -> Plan:
    """Return the full suite, whose results are kept."""
    return Plan("delivery", 100_000, 1_000, (10, 60), (2, 10), Upserts(Corpus(100_000, 8, 400_000), 1, 2), 5)


def quick() -> Plan:
    """Return a small suite with one round, for a trial; its numbers mean little."""
    return Plan("delivery-quick", 10_000, 1_000, (4, 4), (1, 1), Upserts(Corpus(2_000, 3, 20_000), 0, 1), 1)


def main(asked: Asked) -> int:
    """Measure the requested cells; return 0 if all numbers count, 1 if a run failed."""
    turns.end_with_the_run()
    plan = quick() if asked.quick else full()
    chosen = chosen_of(plan, asked)
    work, home = turns.work_folder(asked), turns.runs_folder(asked, plan.suite)
    if UPSERT in chosen:
        fetch_jars(print, jars=pinned(JARS))
    with Stores(work / "stores") as stores:
        runs = list(_in_turns(plan, chosen, asked.rounds or plan.rounds, stores, home, work))
    told = to_results(Measured(runs, by_wall=True), plan.suite, turns.command_of("delivery", asked), {})
    turns.publish(told, asked, RESULTS, home)
    return 1 if any(run.failure for run in runs) else 0


def chosen_of(plan: Plan, asked: Asked) -> set[str]:
    """Return the pairs to measure and whether to measure upserts: the named ones, else all, or in a quick run
    those with a floor."""
    everything = {*(pair.name for pair in plan.pairs), UPSERT}
    if not asked.only:
        return {row.name for row in plan.suite.rows} if asked.quick else everything
    found: set[str] = set()
    for name in asked.only:
        mine = {pair.name for pair in plan.pairs if name in (pair.sink, pair.name)} | ({UPSERT} & {name})
        if not mine:
            known = ", ".join(sorted({*everything, *NAMES}))
            raise PlanError(f"there is nothing called {name!r} to measure", hint=f"choose of: {known}")
        found |= mine
    return found


def _in_turns(plan: Plan, chosen: set[str], rounds: int, stores: Stores, home: Path, work: Path) -> Iterator[Run]:
    """Run all pairs once, then upserts of both sides, then all again; completed runs are not repeated."""
    for round_ in range(rounds):
        for pair in plan.pairs:
            if pair.name in chosen:
                yield from _shown(_pair(pair, stores, round_, home))
        names = [*upserts.CELLS] if round_ % 2 == 0 else [*upserts.CELLS][::-1]
        for name in names if UPSERT in chosen else ():
            path = home / f"{name}-{round_}.json"
            if not path.exists():
                dsn = stores.address("postgres")
                kept(upserts.measure(plan.upserts, name, dsn, round_, work), path)
            yield from _shown([read_run(path)])


def _pair(pair: Pair, stores: Stores, round_: int, home: Path) -> list[Run]:
    paths = [home / f"{cell}-{round_}.json" for cell in pair.cells]
    if not all(path.exists() for path in paths):
        for run, path in zip(deliveries.measure(pair, stores.store(pair.sink), round_), paths, strict=True):
            kept(run, path)
    return [read_run(path) for path in paths]


def _shown(runs: list[Run]) -> list[Run]:
    print(f"  round {runs[0].round + 1}: {deliveries.speeds(runs)}", flush=True)
    return runs
