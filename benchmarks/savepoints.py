"""Measure savepoints: the time to restore a million keys, and the delay of a running job.

python -m benchmarks.savepoints [--quick] [--keys N] [--rounds N] [--work PATH]

Results are stored in results/savepoints.json, except with --quick.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl

import strandline as sl
from benchmarks import machine
from benchmarks.medians import spread
from benchmarks.sessions import start
from benchmarks.workloads import Contestant
from strandline.checkpoint.job_folder import Checkpoint
from strandline.savepoints.restore import restore
from strandline.savepoints.state_reader import read_state
from strandline.savepoints.take import create

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.spark.job import Job

RESULTS: Final = Path(__file__).with_name("results") / "savepoints.json"
COLUMNS: Final = "key long, value long, at timestamp"
KEYS, ROUNDS = 1_000_000, 3
GOAL_SECONDS: Final = 30.0
"""Goal for restoring a million keys on two cores, in seconds."""
INTERVAL: Final = 5.0
"""Seconds between batches of the running job."""
BEFORE, AROUND = 6, 4
"""Observed batches before and after a savepoint."""
PER_BATCH: Final = 20_000


@dataclass(frozen=True, slots=True)
class Asked:
    """Requested sizes and rounds."""

    keys: int = KEYS
    rounds: int = ROUNDS


@dataclass(frozen=True, slots=True)
class Moved:
    """One round: seconds for savepoint, restore and first batch, and what was restored."""

    create: float
    restore: float
    first_batch: float
    rows: int
    size: int


@dataclass(frozen=True, slots=True)
class Gaps:
    """Seconds between batch ends, without and during a savepoint."""

    alone: tuple[float, ...]
    saved: tuple[float, ...]
    savepoint: float
    """Seconds of the command, including its own Spark."""

    @property
    def delay(self) -> float:
        """Return by how much the longest gap during a savepoint exceeds the longest without."""
        return max(self.saved) - max(self.alone)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="twenty thousand keys, once: is it right")
    parser.add_argument("--keys", type=int, default=KEYS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--work", type=Path, help="where it is tried; a folder that is deleted otherwise")
    words = parser.parse_args()
    asked = Asked(20_000, 1) if words.quick else Asked(words.keys, words.rounds)
    with tempfile.TemporaryDirectory(dir=words.work) as folder:
        told = measured(asked, Path(folder))
    print(table(told))
    if not words.quick:
        RESULTS.write_text(json.dumps(told, indent=2) + "\n")
        print(f"kept in {RESULTS}; python -m benchmarks.render writes the page")
    return 0


def measured(asked: Asked, home: Path) -> dict[str, Any]:
    """Measure all in one Spark session."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = start(Contestant.OURS, home / "spark.log")
    try:
        told = job_of(home)
        put(home / "in", 0, asked.keys, asked.keys)
        play(told, spark, home / "job")
        moved = [move(told, spark, home, asked, number) for number in range(asked.rounds)]
        gaps = [saved_while_it_runs(told, spark, home, asked, number) for number in range(asked.rounds)]
    finally:
        spark.stop()
    return to_results(asked, moved, gaps)


def job_of(home: Path) -> sl.Pipeline:
    """Build the job: sum and count by key in windows that stay open during the measurement."""
    return (
        sl.read(sl.files(home / "in", COLUMNS, format="parquet"))
        .event_time("at", sl.bounded(seconds=5))
        .key_by("key")
        .window(sl.tumbling(days=1))
        .aggregate(total=sl.sum("value"), plays=sl.count())
        .write(sl.discard(), delivery="at_least_once")  # a sink that keeps nothing stands nowhere
    )


def put(folder: Path, number: int, many: int, keys: int) -> None:
    """Write a file of events atomically."""
    folder.mkdir(exist_ok=True)
    at = pl.datetime(2024, 5, 1, 12, time_unit="us", time_zone="UTC")
    frame = pl.select(key=(pl.int_range(many, dtype=pl.Int64) * 7 + number) % keys).with_columns(
        value=pl.col("key") % 10, at=at
    )
    draft = folder / f".{number}.parquet"
    frame.write_parquet(draft)
    draft.rename(folder / f"{number}.parquet")


def play(told: sl.Pipeline, spark: "SparkSession", home: Path) -> float:
    begun = time.perf_counter()
    job: Job = told.run(spark, checkpoint=home, available_now=True, heartbeat_seconds=1e9)
    job.await_end()
    return time.perf_counter() - begun


def move(told: sl.Pipeline, spark: "SparkSession", home: Path, asked: Asked, number: int) -> Moved:
    """Save, restore into five partitions instead of two, continue; nothing may be lost."""
    begun = time.perf_counter()
    saved = create(spark, home / "job", home / "saved" / f"round-{number}")
    created = time.perf_counter()
    to = home / f"restored-{number}"
    restore(told.root, spark, saved.folder, to, partitions=5, key_groups=10)
    restored = time.perf_counter()
    rows, total = held(spark, to)
    if (rows, total) != held(spark, home / "job") or rows != asked.keys:
        raise RuntimeError(f"{rows} windows with {total} were restored of {asked.keys}")
    put(home / "in", 1 + number, PER_BATCH, asked.keys)
    took = play(told, spark, to)
    play(told, spark, home / "job")
    return Moved(created - begun, restored - created, took, rows, saved.size)


def held(spark: "SparkSession", job: Path) -> tuple[int, int]:
    """Return the number of stored windows and their sum."""
    state = read_state(spark, Checkpoint(job))
    frames = [each.frames["windows"] for group in state.of_step(0) for each in group.slices()]
    windows = pl.concat(frames)
    return windows.height, int(windows["@total"].sum())


@contextmanager
def fed(folder: Path, first: int, keys: int) -> Iterator[None]:
    """Write two new files per interval until the block ends."""
    done = threading.Event()

    def feed() -> None:
        number = first
        while not done.wait(INTERVAL / 2):
            put(folder, number, PER_BATCH // 2, keys)
            number += 1

    thread = threading.Thread(target=feed, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def saved_while_it_runs(told: sl.Pipeline, spark: "SparkSession", home: Path, asked: Asked, number: int) -> Gaps:
    """Run a job with periodic batches and save it with the command line meanwhile."""
    ends: list[float] = []
    job: Job = told.run(
        spark, checkpoint=home / "job", every=f"{INTERVAL} seconds", listener=lambda _: ends.append(time.monotonic())
    )
    with job, fed(home / "in", 10_000 * (1 + number), asked.keys):
        wait_for(job, ends, 2 + BEFORE)
        program = str(Path(sys.executable).with_name("strandline"))
        words = ["savepoint", "create", str(home / "job"), "--to", str(home / "saved" / f"running-{number}")]
        begun = time.monotonic()
        with subprocess.Popen([program, *words], stdout=subprocess.DEVNULL) as saving:
            if saving.wait() != 0:
                raise RuntimeError("the savepoint failed")
        done = time.monotonic()
        wait_for(job, ends, len(ends) + AROUND)
    gaps = [(end, end - start) for start, end in pairwise(ends[1:])]  # the first is a warm-up
    alone = [gap for end, gap in gaps if end <= begun]
    saved = [gap for end, gap in gaps if begun < end <= done + INTERVAL]
    return Gaps(tuple(alone), tuple(saved), done - begun)


def wait_for(job: "Job", ends: Sequence[float], many: int) -> None:
    while len(ends) < many:
        if job.await_end(0.1):
            raise RuntimeError("the job has ended")


def to_results(asked: Asked, moved: Sequence[Moved], gaps: Sequence[Gaps]) -> dict[str, Any]:
    """Build the stored results."""
    restored = spread([each.restore for each in moved])
    delays = spread([each.delay for each in gaps])
    return {
        "commit": machine.commit(),
        "command": "python -m benchmarks.savepoints",
        "machine": machine.facts(),
        "keys": asked.keys,
        "interval": INTERVAL,
        "restore": asdict(restored) | {"goal": GOAL_SECONDS, "reached": restored.median <= GOAL_SECONDS},
        "delay": asdict(delays) | {"goal": INTERVAL, "reached": delays.high <= INTERVAL},
        "moved": [asdict(each) for each in moved],
        "gaps": [asdict(each) for each in gaps],
    }


def table(told: dict[str, Any]) -> str:
    """Format the two results as text."""
    restored, delay = told["restore"], told["delay"]
    return (
        f"restore of {told['keys']:,} keys: {restored['median']:.1f} s (goal {restored['goal']:.0f} s)\n"
        f"a savepoint delays a batch by at most {delay['high']:.1f} s (goal {delay['goal']:.0f} s)"
    )


if __name__ == "__main__":
    sys.exit(main())
