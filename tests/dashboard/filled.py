"""Create job folders for the dashboard, with an identity and numbers, by the real store and without Spark."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strandline.model.counts import Counts
from strandline.model.histograms import Histogram, of_times
from strandline.observe.metrics.history import JobState
from strandline.observe.metrics.metrics import BatchMetrics, HotKey, PartitionMetrics, StepMetrics
from strandline.observe.metrics.store import Retention, Store
from strandline.observe.metrics.tables import AlarmLine, PaneLine

SECOND = 1000
PLAN = """scan      scores, event time from 'at'
prepare   in Python, per partition: decode, windows of 5 s, pre-aggregate by team
          one block for each key group crosses the shuffle
keyed     in Python, per key group: when the watermark passes the end, retracting
          watermark highest seen − 3 s, partitions idle after 4 s
          keeps total, plays per key and window until 10 s after the window's end
deliver   to sqlite('totals'), exactly once"""


def definition(database: Path | None = None) -> dict[str, Any]:
    """A pipeline as a checkpoint stores it: scores by team to SQLite."""
    read = {"is": "Read", "source": {"is": "Scores", "name": "scores", "events": 15000}}
    timed = {"is": "EventTime", "of": read, "column": "at", "watermark": {"is": "Watermark"}}
    step = {"is": "WindowedStep", "aggregates": [["total", {"is": "Sum"}], ["plays", {"is": "Count"}]]}
    keyed = {"is": "Aggregated", "of": timed, "keys": ["team"], "step": step}
    sink = {"is": "Sqlite", "path": str(database or "/nowhere.db"), "table": "totals", "mode": "append", "key": []}
    return {"is": "Write", "of": keyed, "sink": sink, "delivery": "exactly_once"}


@dataclass(frozen=True)
class JobToFill:
    """Settings of a job folder to create."""

    name: str = "scores"
    batches: int = 60
    every: int = 2 * SECOND
    state: JobState = JobState.RUNNING
    problem: str = ""
    pid: int = field(default_factory=os.getpid)
    key: str = "red"
    lag: int = 40
    rate: float = 1.0
    stuck: bool = False
    pipeline: Any = None
    alarms: Sequence[AlarmLine] = ()


def fill(folder: Path, job: JobToFill, now: int | None = None) -> Path:
    """Write the folder of a job that has run up to now."""
    now = now or time.time_ns() // 1_000_000
    identify(folder, job.pipeline or definition())
    store = Store(folder, job.name, Retention(days=2))
    started = now - job.batches * job.every
    store.start(started)
    for number in range(job.batches):
        store.add(batch(number, started + (number + 1) * job.every, job), panes(number, started, job))
    store.alarms(job.alarms)
    store.alive(now, job.state, job.problem)
    if not job.state.is_alive:
        store.event(now, job.state.value, job.problem or f"after batch {job.batches - 1}")
    # As if signs of life kept coming, however slow the machine is that looks at it.
    store._connection.execute("UPDATE runs SET pid = ?, heartbeat = heartbeat + 3600000", (job.pid,))
    store.close()
    return folder


def identify(folder: Path, pipeline: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    about = {
        "fingerprint": "9f2c" * 16, "lineage": "3b1f" * 8, "stages": PLAN, "definition": pipeline, "key_groups": 4,
    }  # fmt: skip
    (folder / "strandline.json").write_text(json.dumps(about))


def batch(number: int, at: int, job: JobToFill) -> BatchMetrics:
    """The numbers of a batch, with some variation."""
    wave = (number * 7919) % 13
    read = int((900 + 40 * wave) * job.rate)
    late, dead = wave // 4, int(wave == 5)
    counts = Counts(read, read - late - dead, late, dead)
    mark = at - 4200 - 150 * wave if not job.stuck else at - number * job.every - 60_000
    partitions = tuple(
        PartitionMetrics(
            f"scores-{each}", at - 900 - 200 * each, mark + 300 * each, at - 500 - each * 3000 * (each == 3),
            idle=each == 3, lag_records=job.lag + 5 * each, lag_seconds=0.4 + each / 10,
        )
        for each in range(4)
    )  # fmt: skip
    step = StepMetrics(
        "step 1", mark, mark - 10_000, int((240 + 3 * wave) * job.rate), 52_000 + 400 * wave, counts,
        (read // 2, read // 4, read // 8, read - read // 2 - read // 4 - read // 8),
    )  # fmt: skip
    hot = ((job.key, 3), ("blue", 5), ("green", 9))
    return BatchMetrics(
        batch=number, at=at, clock=at - 1100, seconds=job.every / 1000, counts=counts,
        out={"early": 30, "on_time": 12 + wave, "late": late}, retractions=8, watermark=mark, held_by="scores-0",
        partitions=partitions, partition_count=4, lag_records=job.lag + 10 * wave, lag_seconds=0.8 + wave / 10,
        latency={"early": of_times([900 + 30 * wave] * 30), "on_time": of_times([5200 + 90 * wave] * 12)},
        stages={"source": 0.02, "read": 0.1, "prepare": 0.24, "shuffle": 0.1, "state": 0.2, "step": 0.3 + wave / 50,
                "deliver": 0.12 * job.rate, "commit": 0.08},
        busy={"prepare": 0.5, "step": 0.7, "state": 0.3}, steps=(step,),
        hot=tuple(HotKey("step 1", json.dumps({"team": key}), read // n, 1 / n) for key, n in hot),
        lateness=lateness(read), reasons={"not JSON": dead} if dead else {},
    )  # fmt: skip


def lateness(many: int) -> Histogram:
    """Most elements arrive within a second, some after a few, a handful after half a minute."""
    return of_times(
        [40 + each % 300 for each in range(many * 7 // 10)]
        + [600 + each * 9 for each in range(many * 2 // 10)]
        + [2500 + each * 31 for each in range(many // 12)]
        + [14_000, 31_000]
    )


STORY = (
    (("early", 0, 120, False),),
    (("early", 0, 120, True), ("early", 1, 260, False)),
    (("early", 1, 260, True), ("on_time", 2, 340, False)),
    (("on_time", 2, 340, True), ("late", 3, 355, False)),
    (),
)
"""The panes of five batches for a window: each retracts the one before."""


def panes(number: int, started: int, job: JobToFill) -> list[PaneLine]:
    """A window of ten seconds for every five batches: early, on-time and late panes, with retractions."""
    at = started + (number + 1) * job.every
    start = (started // 10_000 + number // len(STORY)) * 10_000
    collected = []
    for key in (job.key, "blue"):
        for timing, index, total, back in STORY[number % len(STORY)]:
            collected.append(
                PaneLine(
                    0, at, number, 0, json.dumps({"team": key}), start, start + 10_000, timing, index, False, back,
                    json.dumps({"total": total, "plays": total // 10}),
                )
            )  # fmt: skip
    return collected


def a_dead_process() -> int:
    """The pid of a process that has ended."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return pid
