"""`strandline bench bounded`: a folder that ends, as one batch: against our own stream, and a plain batch job."""

from pathlib import Path
from typing import Final

from benchmarks import turns
from benchmarks.corpus import Corpus
from benchmarks.results import Measured, to_results
from benchmarks.runs import Run, measure
from benchmarks.suite import TUMBLING, Cell, Group, Row, Suite
from benchmarks.turns import Asked
from benchmarks.workloads import Contestant

RESULTS = Path(__file__).resolve().parent / "results" / "bounded.json"

ROWS: Final = (
    Row("stream", "our own stream over the same files, 100 k keys", "at-once", "stream", 1.0, 1.5),
    Row("plain", "spark.read and groupBy, a batch job, 100 k keys", "at-once", "plain", 0.5, 0.8),
)


def full() -> Suite[Cell]:
    """The run whose figures are kept: ten million events."""
    return _suite("bounded", Corpus(100_000, 10, 1_000_000, late=False), warm_seconds=30, rounds=3)


def quick() -> Suite[Cell]:
    """The same, small and once: to try it out. Its figures say little."""
    return _suite("bounded-quick", Corpus(10_000, 4, 50_000, late=False), warm_seconds=0, rounds=1)


def _suite(name: str, corpus: Corpus, *, warm_seconds: float, rounds: int) -> Suite[Cell]:
    """No event is late, so that all three have the same result; and all of a run counts, since it ends."""
    who = (("at-once", Contestant.AT_ONCE), ("stream", Contestant.OURS), ("plain", Contestant.PLAIN))
    cells = tuple(
        Cell(each, contestant, TUMBLING, corpus, warm_up=0, warm_seconds=warm_seconds) for each, contestant in who
    )
    return Suite(name, (Group("bounded", cells),), rounds, ROWS)


def main(asked: Asked) -> int:
    """Measures what is asked; 0 if every number counts, 1 if a run failed."""
    turns.end_with_the_run()
    chosen = quick() if asked.quick else full()
    work, home = turns.work_folder(asked), turns.runs_folder(asked, chosen)

    def run(cell: Cell, round_: int, check: bool) -> Run:
        return measure(cell, round_, work, check=check)

    runs = list(turns.in_turns(chosen, turns.chosen_cells(chosen, asked), asked.rounds or chosen.rounds, home, run))
    told = to_results(Measured(runs), chosen, turns.command_of("bounded", asked), turns.digests(work))
    turns.publish(told, RESULTS if asked.is_whole else home / "bounded.json", whole=asked.is_whole)
    return 1 if any(run.failure for run in runs) else 0
