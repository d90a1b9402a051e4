"""`strandline bench peers`: run one query, sum and count by key in tumbling windows, in many systems alternately.

Contestants on Spark run as in `bench windows`. Each other peer is a program in its own environment, run over a corpus
and over one twice as long: the additional use of the second is the cost of its events, the rest of the first is the
start-up cost. Ours is measured in both ways.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks import runs, turns
from benchmarks.broker import Broker
from benchmarks.corpus import Corpus
from benchmarks.peers import programs_run
from benchmarks.peers.catalogue import ABSENT, PEERS, Peer
from benchmarks.peers.programs_run import Program
from benchmarks.results import Measured, to_results
from benchmarks.runs import Run
from benchmarks.sessions import JARS
from benchmarks.suite import TUMBLING, Cell, Group, Row, Suite
from benchmarks.turns import Asked
from benchmarks.workloads import Contestant
from strandline.spark.launch.jars import fetch_jars, pinned

RESULTS: Final = Path(__file__).resolve().parent.parent / "results" / "peers.json"

THIN: Final = 20
"""Slow peers get only each n-th key, with all of its events."""

Measurable = Cell | Program

ON_SPARK: Final = (
    Row("native-rocksdb", "native PySpark by hand, RocksDB", "ours", "native-rocksdb", 1.3, 2.0),
    Row("native-memory", "native PySpark by hand, in memory", "ours", "native-memory", 0.9, 1.3),
    Row("by-key-pandas", "transformWithStateInPandas by hand", "ours", "by-key-pandas", 10.0, 50.0),
    Row("by-key-row", "transformWithState by hand, row by row", "ours", "by-key-row", 5.0, 20.0),
)
AT_FIRST: Final = ("bytewax", "pathway", "quix")
"""For a quick run, which installs them: not those on Spark, which `bench windows` tries as well, nor those that take
minutes to install or to start, Beam, Flink and Kafka Streams."""


def full() -> Suite[Measurable]:
    """Return the full suite, whose results are kept."""
    wide = Corpus(100_000, 9, 1_000_000)
    thin = Corpus(100_000, 5, 1_000_000, thin=50)
    few, many = Corpus(100_000, 4, 500_000, late=False), Corpus(100_000, 8, 500_000, late=False)
    return _suite("peers", (wide, thin), 4, 30.0, (few, many), rounds=3)


def quick() -> Suite[Measurable]:
    """Return a small suite with one round, for a trial; its numbers mean little."""
    wide = Corpus(10_000, 4, 100_000)
    thin = Corpus(10_000, 3, 100_000, thin=50)
    small = Corpus(10_000, 4, 50_000, late=False)
    suite = _suite("peers-quick", (wide, thin), 1, 0.0, (small, small), rounds=1, start_counts=True)
    return suite.held_to(AT_FIRST)


def _suite(
    name: str,
    on_spark: tuple[Corpus, Corpus],
    warm_up: int,
    warm_seconds: float,
    read: tuple[Corpus, Corpus],
    *,
    rounds: int,
    start_counts: bool = False,
) -> Suite[Measurable]:
    """Build the suite. `read` holds the shorter corpora of programs: the usual one, and one for programs on a JVM.

    The latter is longer, because compilation is not a cost of events and varies between starts.
    """
    wide, thin = on_spark
    spark = (
        Cell("ours", Contestant.OURS, TUMBLING, wide, warm_up, warm_seconds=warm_seconds),
        Cell("native-rocksdb", Contestant.NATIVE_ROCKSDB, TUMBLING, wide, warm_up, warm_seconds=warm_seconds),
        Cell("native-memory", Contestant.NATIVE_MEMORY, TUMBLING, wide, warm_up, warm_seconds=warm_seconds),
        Cell("by-key-pandas", Contestant.BY_KEY, TUMBLING, thin, warm_up=min(warm_up, 2)),
        Cell("by-key-row", Contestant.BY_KEY_ROW, TUMBLING, thin, warm_up=min(warm_up, 2)),
    )
    programs = [
        Program(peer.name, peer, _corpus(peer, read[peer.longer]), start_counts=start_counts) for peer in PEERS.values()
    ]
    groups: tuple[Group[Measurable], ...] = (
        Group("spark", spark),
        Group("lines", tuple(cell for cell in programs if not cell.peer.by_topic)),
        Group("topic", tuple(cell for cell in programs if cell.peer.by_topic)),
    )
    rows = [
        Row(peer.name, peer.title, "ours-topic" if peer.by_topic else "ours-lines", peer.name, peer.floor, peer.goal)
        for peer in PEERS.values()
        if peer.program
    ]
    return Suite(name, groups, rounds, (*ON_SPARK, *rows))


def _corpus(peer: Peer, whole: Corpus) -> Corpus:
    return whole if peer.is_fast else replace(whole, thin=THIN)


def main(asked: Asked) -> int:
    """Measure the requested cells; return 0 if all numbers count, 1 if a run failed. Missing peers are reported."""
    turns.end_with_the_run()
    chosen = quick() if asked.quick else full()
    cells, rounds = turns.chosen_cells(chosen, asked), asked.rounds or chosen.rounds
    work, home = turns.work_folder(asked), turns.runs_folder(asked, chosen)
    with _broker(cells, work) as broker:

        def run(cell: Measurable, round_: int, check: bool) -> Run:
            if isinstance(cell, Cell):
                return runs.measure(cell, round_, work, check=check)
            return programs_run.measure(cell, round_, work, check=check, broker=broker)

        made = list(turns.in_turns(chosen, cells, rounds, home, run))
    told = to_results(Measured(made), chosen, turns.command_of("peers", asked), turns.digests(work, "*keys-*"))
    turns.publish(told, asked, RESULTS, home)
    return 1 if any(run.failure and ABSENT not in run.failure for run in made) else 0


def _broker(cells: set[str], work: Path) -> AbstractContextManager[Broker | None]:
    """Start a broker if a cell reads from it."""
    if not any(name in cells and peer.by_topic for name, peer in PEERS.items()):
        return nullcontext()
    fetch_jars(print, jars=pinned(JARS))
    return Broker(work / "broker")
