"""Measure the cost of metrics: switch them on and off during a job, a few batches each.

Two separate jobs differ by chance by far more than metrics cost. So neighbouring stretches of one job are compared,
each way equally often first and second.

python -m benchmarks.watching [--quick] [--jobs N] [--work PATH]

Results are stored in results/watching.json, except with --quick.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from benchmarks import corpus as corpora
from benchmarks import machine, ours, turns
from benchmarks.corpus import Corpus
from benchmarks.feeds import Folder
from benchmarks.medians import spread
from benchmarks.meter import look
from benchmarks.sessions import start
from benchmarks.turns import Asked
from benchmarks.workloads import Contestant, Tumbling, Workload
from strandline.observe.metrics.observer import Recorder
from strandline.spark.delivery import deliver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.execution.batch import Batch
    from strandline.spark.delivery.deliver import Delivered

RESULTS: Final = Path(__file__).with_name("results") / "watching.json"
GOAL: Final = 0.02
"""Maximum relative increase of batch time by metrics."""
STRETCH: Final = 5
"""Batches per stretch; the first does not count, since its metrics are written during the next."""
WARM: Final = 2 * STRETCH
"""Warm-up batches of a job."""
BATCHES: Final = WARM + 60
JOBS: Final = 8
_DRAWN: Final = 2_000
_SWITCHED: Final[Sequence[tuple[Any, str]]] = ((deliver, "send"), (Recorder, "delivered"), (Recorder, "_step"))


@dataclass(frozen=True, slots=True)
class Heard:
    """A finished batch: whether metrics were on, and its times."""

    kept: bool
    moment: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Pair:
    """Two neighbouring stretches of a job, with and without metrics: seconds per batch."""

    kept: float
    bare: float
    kept_cpu: float
    bare_cpu: float

    @property
    def cost(self) -> float:
        """Return the relative increase of batch time."""
        return self.kept / self.bare - 1

    @property
    def cpu(self) -> float:
        """Return the relative increase of CPU time."""
        return self.kept_cpu / self.bare_cpu - 1


def is_kept(batch: int, stretch: int = STRETCH) -> bool:
    """Return whether metrics are on for this batch: with, without, without, with, and so on."""
    return batch // stretch % 4 in {0, 3}


@dataclass(slots=True)
class Switch:
    """Switch for the metrics of this process's jobs, and a record of their batches."""

    stretch: int = STRETCH
    session: int = field(default_factory=lambda: os.getsid(0))
    heard: list[Heard] = field(default_factory=list)

    def put(self) -> None:
        """Patch the functions that start a batch and record metrics."""
        send, delivered, turn = (getattr(*each) for each in _SWITCHED)

        def told(context: Any, batch: "Batch") -> None:
            on = is_kept(len(self.heard), self.stretch)
            send(context, batch if on else replace(batch, measured=False, heads={}))

        def hear(recorder: Recorder, batch: "Delivered", spent: float | None) -> None:
            on = is_kept(len(self.heard), self.stretch)
            self.heard.append(Heard(on, time.monotonic(), look(self.session).cpu_seconds))
            if on:
                delivered(recorder, batch, spent)

        def turned(recorder: Recorder) -> None:
            if is_kept(len(self.heard), self.stretch) or recorder._queue:  # noqa: SLF001 - it is switched
                turn(recorder)

        for (owner, name), put in zip(_SWITCHED, (told, hear, turned), strict=True):
            setattr(owner, name, put)


def pairs_of(heard: Sequence[Heard], stretch: int = STRETCH) -> list[Pair]:
    """Pair the stretches; each counts from the end of its first batch to the end of its last."""
    found = []
    for begin in range(0, len(heard) - 2 * stretch + 1, 2 * stretch):
        seconds, cpu = {}, {}
        for first in (begin, begin + stretch):
            mine = heard[first : first + stretch]
            seconds[mine[0].kept] = (mine[-1].moment - mine[0].moment) / (stretch - 1)
            cpu[mine[0].kept] = (mine[-1].cpu_seconds - mine[0].cpu_seconds) / (stretch - 1)
        found.append(Pair(seconds[True], seconds[False], cpu[True], cpu[False]))
    return found


def interval(values: Sequence[float], share: float = 0.95, seed: int = 7) -> tuple[float, float]:
    """Return the bootstrap interval of the median."""
    drawn = random.Random(seed)  # noqa: S311 - nothing is to be kept secret
    medians = sorted(median(drawn.choices(values, k=len(values))) for _ in range(_DRAWN))
    outside = round(_DRAWN * (1 - share) / 2)
    return medians[outside], medians[-1 - outside]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small, and twice; its figures say little")
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--work", type=Path, help="where the corpus is kept")
    asked = parser.parse_args()
    if os.getsid(0) != os.getpid():
        # The meter covers all processes of a session.
        command = [sys.executable, "-m", "benchmarks.watching", *sys.argv[1:]]
        return subprocess.run(command, start_new_session=True, check=False).returncode
    corpus = Corpus(10_000, WARM + 20, 50_000) if asked.quick else Corpus(100_000, BATCHES)
    folder, _ = corpora.written(corpus, turns.work_folder(Asked(work=asked.work)) / "corpora")
    with tempfile.TemporaryDirectory() as home:
        pairs = measured(Folder(str(folder)), Path(home), 2 if asked.quick else asked.jobs)
    told = to_results(pairs, corpus, " ".join(["python -m benchmarks.watching", *sys.argv[1:]]))
    for name, what in (("cost", "a batch takes longer by"), ("cpu", "it takes more CPU time by")):
        print(f"{what} {told[name]['median']:+.2%} ({told[name]['least']:+.2%} to {told[name]['most']:+.2%})")
    if not asked.quick:
        RESULTS.write_text(json.dumps(told, indent=1) + "\n")
    return 0


def measured(feed: Folder, home: Path, jobs: int) -> list[Pair]:
    """Run jobs one after the other in one Spark; the first does not count."""
    spark = start(Contestant.OURS, home / "spark.log", feed)
    switch, pairs = Switch(), list[Pair]()
    switch.put()
    for number in range(jobs + 1):
        switch.heard.clear()
        _play(spark, feed, home / f"{number}")
        if number:
            mine = pairs_of(switch.heard[WARM:])
            pairs += mine
            told = ", ".join(f"{pair.cost:+.1%}" for pair in mine)
            print(f"job {number} of {jobs}: {told}; {median(pair.bare for pair in mine):.2f} s a batch", flush=True)
    spark.stop()
    return pairs


def _play(spark: "SparkSession", feed: Folder, checkpoint: Path) -> None:
    asked = ours.pipeline(feed, Workload(Tumbling(20)))
    asked.run(spark, checkpoint=checkpoint, available_now=True, metrics=True).await_end()


def to_results(pairs: Sequence[Pair], corpus: Corpus, command: str) -> dict[str, Any]:
    """Build the stored results. The goal must lie above the confidence interval."""
    cost, cpu = _told(pairs, lambda pair: pair.cost), _told(pairs, lambda pair: pair.cpu)
    return {
        "commit": machine.commit(),
        "command": command,
        "machine": machine.facts(),
        "corpus": corpus.name,
        "cost": cost | {"goal": GOAL, "reached": cost["most"] < GOAL},
        "cpu": cpu,
        "pairs": [asdict(pair) for pair in pairs],
    }


def _told(pairs: Sequence[Pair], of: Callable[[Pair], float]) -> dict[str, Any]:
    values = [of(pair) for pair in pairs]
    least, most = interval(values)
    return asdict(spread(values)) | {"least": least, "most": most}


if __name__ == "__main__":
    sys.exit(main())
