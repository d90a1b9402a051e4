"""`strandline bench sources`: windows over records of a real broker, JSON and Avro, against hand-written PySpark."""

from pathlib import Path
from typing import Final

from benchmarks import turns
from benchmarks.broker import Broker
from benchmarks.corpus import Corpus
from benchmarks.feeds import Form
from benchmarks.results import Measured, to_results
from benchmarks.runs import Run, measure
from benchmarks.sessions import JARS
from benchmarks.suite import TUMBLING, Cell, Group, Row, Suite
from benchmarks.turns import Asked
from benchmarks.workloads import Contestant
from strandline.spark.launch.jars import fetch_jars, pinned

RESULTS = Path(__file__).resolve().parent / "results" / "sources.json"

ROWS: Final = (
    Row("json", "from_json on Kafka, native append on RocksDB, 100 k keys", "ours-json", "native-json", 0.9, 1.5),
    Row("avro", "from_avro on Kafka, native append on RocksDB, 100 k keys", "ours-avro", "native-avro", 0.9, 1.5),
)
REPORTED: Final = (
    Row("json-avro", "JSON, against our own run with Avro", "ours-json", "ours-avro"),
)  # fmt: skip


def full() -> Suite[Cell]:
    """Return the full suite, whose results are kept."""
    return _suite("sources", Corpus(100_000, 10, 400_000), warm_up=4, warm_seconds=30, rounds=3)


def quick() -> Suite[Cell]:
    """Return a small suite with one round, for a trial; its numbers mean little."""
    return _suite("sources-quick", Corpus(10_000, 4, 50_000), warm_up=1, warm_seconds=0, rounds=1)


def _suite(name: str, corpus: Corpus, *, warm_up: int, warm_seconds: float, rounds: int) -> Suite[Cell]:
    cells = tuple(
        Cell(f"{who}-{form}", contestant, TUMBLING, corpus, warm_up, form=form, warm_seconds=warm_seconds)
        for form in Form
        for who, contestant in (("ours", Contestant.OURS), ("native", Contestant.NATIVE_ROCKSDB))
    )
    return Suite(name, (Group("kafka", cells),), rounds, ROWS, REPORTED)


def main(asked: Asked) -> int:
    """Measure the requested cells; return 0 if all numbers count, 1 if a run failed."""
    turns.end_with_the_run()
    chosen = quick() if asked.quick else full()
    cells = turns.chosen_cells(chosen, asked)
    work, home = turns.work_folder(asked), turns.runs_folder(asked, chosen)
    with broker(work) as there:

        def run(cell: Cell, round_: int, check: bool) -> Run:
            return measure(cell, round_, work, check=check, broker=there)

        runs = list(turns.in_turns(chosen, cells, asked.rounds or chosen.rounds, home, run))
    told = to_results(Measured(runs), chosen, turns.command_of("sources", asked), there.digests())
    turns.publish(told, asked, RESULTS, home)
    return 1 if any(run.failure for run in runs) else 0


def broker(work: Path) -> Broker:
    """Start the broker, with Spark's jars to read from it."""
    fetch_jars(print, jars=pinned(JARS))
    return Broker(work / "broker")
