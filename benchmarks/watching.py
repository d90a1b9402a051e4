"""What it costs that a job keeps its metrics: the same job with and without them, in turns, in one Spark.

Two measures, since CPU time of the same job differs by more than what is looked for: the difference of the two, and
what the code of metrics itself takes, by clocks on it (`clocked.py`).

python -m benchmarks.watching [--quick] [--rounds N] [--work PATH]

The numbers are kept in results/watching.json, unless --quick is said.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks import clocked, machine, ours, turns
from benchmarks import corpus as corpora
from benchmarks.corpus import Corpus
from benchmarks.feeds import Folder
from benchmarks.medians import spread
from benchmarks.meter import look
from benchmarks.sessions import start
from benchmarks.turns import Asked
from benchmarks.workloads import Contestant, Tumbling, Workload
from strandline.observe import observer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RESULTS: Final = Path(__file__).with_name("results") / "watching.json"
GOAL: Final = 0.02
"""The most of a job's CPU time that its metrics may take."""
ROUNDS: Final = 16
WARM: Final = 3


@dataclass(frozen=True, slots=True)
class Pair:
    """CPU seconds of one job that keeps its metrics, and of the same that keeps none."""

    kept: float
    bare: float
    own: float
    """CPU seconds that the code of metrics took: of workers, and of its own thread in the driver."""

    @property
    def cost(self) -> float:
        """The share of the job's time by which it is longer."""
        return self.kept / self.bare - 1

    @property
    def share(self) -> float:
        """The share of the job's time that is spent in metrics."""
        return self.own / self.kept


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small, and twice; its figures say little")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--work", type=Path, help="where the corpus is kept")
    asked = parser.parse_args()
    if os.getsid(0) != os.getpid():
        # What is metered is a session: everyone in it, and nobody else.
        command = [sys.executable, "-m", "benchmarks.watching", *sys.argv[1:]]
        return subprocess.run(command, start_new_session=True, check=False).returncode
    corpus = Corpus(10_000, 4, 50_000) if asked.quick else Corpus(100_000, 9)
    folder, _ = corpora.written(corpus, turns.work_folder(Asked(work=asked.work)) / "corpora")
    with tempfile.TemporaryDirectory() as home:
        pairs = measured(Folder(str(folder)), Path(home), 2 if asked.quick else asked.rounds)
    told = to_results(pairs, corpus, " ".join(["python -m benchmarks.watching", *sys.argv[1:]]))
    for name, what in (("own", "their own code"), ("cost", "jobs with them take more by")):
        print(f"{what}: {told[name]['median']:+.2%} ({told[name]['low']:+.2%} to {told[name]['high']:+.2%})")
    if not asked.quick:
        RESULTS.write_text(json.dumps(told, indent=1) + "\n")
    return 0


def measured(feed: Folder, home: Path, rounds: int) -> list[Pair]:
    """Pairs of jobs one after the other, each time the other one first: a JVM gets faster as it goes."""
    file = home / "clocked"
    os.environ[clocked.FILE] = str(file)
    spark = start(Contestant.OURS, home / "spark.log", feed, also={"spark.python.daemon.module": "benchmarks.clocked"})
    clock_driver(file)
    for number in range(WARM):
        _played(spark, feed, home / f"warm-{number}", kept=True)
    pairs = []
    for number in range(rounds):
        used, own = {}, {}
        for kept in (True, False) if number % 2 else (False, True):
            before = clocked.seconds(file)
            used[kept] = _played(spark, feed, home / f"{number}-{kept}", kept=kept)
            own[kept] = clocked.seconds(file) - before
        # A worker asks in any case whether it is to measure; that counts neither for nor against.
        pairs.append(Pair(used[True], used[False], own[True] - own[False]))
        print(
            f"round {number + 1}: {used[True]:.2f} s with, {used[False]:.2f} s without, {pairs[-1].cost:+.1%}; "
            f"their own code {pairs[-1].own:.3f} s, {pairs[-1].share:.2%}",
            flush=True,
        )
    spark.stop()
    return pairs


def clock_driver(file: Path) -> None:
    """Clocks on what the driver does for metrics: the turns of their thread, and what a batch hands to it."""
    for name in ("started", "delivered", "_turn", "_finish"):
        function = getattr(observer.Recorder, name)
        setattr(observer.Recorder, name, clocked.clocked(function, file, time.thread_time))


def _played(spark: "SparkSession", feed: Folder, checkpoint: Path, *, kept: bool) -> float:
    """The CPU seconds that one job took, of all processes."""
    before = look(os.getsid(0)).cpu_seconds
    asked = ours.pipeline(feed, Workload(Tumbling(20)))
    asked.run(spark, checkpoint=checkpoint, available_now=True, metrics=kept).await_end()
    return look(os.getsid(0)).cpu_seconds - before


def to_results(pairs: list[Pair], corpus: Corpus, command: str) -> dict[str, Any]:
    """What is kept of it."""
    cost, own = spread([pair.cost for pair in pairs]), spread([pair.share for pair in pairs])
    return {
        "commit": machine.commit(),
        "command": command,
        "machine": machine.facts(),
        "corpus": corpus.name,
        "own": asdict(own) | {"goal": GOAL, "reached": own.high < GOAL},
        "cost": asdict(cost),
        "pairs": [asdict(pair) for pair in pairs],
    }


if __name__ == "__main__":
    sys.exit(main())
