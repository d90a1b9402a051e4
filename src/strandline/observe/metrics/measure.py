"""The numbers of a batch, from what was delivered and what Spark says of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import polars as pl

from strandline.kernel.blocks.block import AT, END
from strandline.kernel.output import Output
from strandline.kernel.watermarks import FOREVER, NEVER, PartitionProgress, Progress
from strandline.kernel.window.panes import RETRACTION, TIMING
from strandline.model.counts import Counts
from strandline.model.histograms import Histogram, histogram
from strandline.observe.metrics.lag import Following, Lag, positions_in
from strandline.observe.metrics.metrics import BatchMetrics, HotKey, PartitionMetrics, StepMetrics
from strandline.observe.metrics.space_saving import HeavyHitters
from strandline.plan.stages import step_name
from strandline.spark.delivery.deliver import Delivered
from strandline.spark.tasks.task_metrics import buckets

SHOWN_PARTITIONS: Final = 64
SHOWN_KEYS: Final = 10
ELEMENT: Final = "element"
ALONE: Final = "input"
"""How the only partition of a source is called, which has no name."""

Spoken = Sequence[tuple[str, pl.DataFrame, int]]
"""Panes by timing, and how many they stand for: of elements that tasks put away, a few are shown."""

_SAMPLED: Final = 4_096
_WRITE: Final = "write"
_PLAY: Final = ("read", "prepare", "state", "step", _WRITE)


@dataclass(slots=True)
class Meter:
    """What must be remembered from batch to batch."""

    cores: int = 1
    following: Following = field(default_factory=Following)
    hot: dict[str, HeavyHitters] = field(default_factory=dict)
    _before: int | None = None

    def measure(
        self, batch: Delivered, spark: Mapping[str, Any] | None, *, retries: int = 0, budget: float | None = None
    ) -> BatchMetrics:
        """A batch's numbers; without what Spark says of it where that is not known."""
        progress, outputs = batch.output.progress, batch.outputs or (batch.output,)
        parts, spoken = named_partitions(progress), by_timing(outputs)
        lags = self.following.lags(positions_in((spark or {}).get("sources", ())), progress.clock)
        since, self._before = self._before, batch.at
        known = [each.seconds for each in lags.values() if each.seconds is not None]
        highest = max((each.highest for each in parts.values()), default=NEVER)
        front = progress.clock if highest == NEVER else highest
        return BatchMetrics(
            batch=batch.batch,
            at=batch.at,
            clock=progress.clock,
            seconds=0.0 if since is None else max(batch.at - since, 0) / 1000,
            counts=batch.output.counts,
            out=_counted(spoken),
            retractions=sum(_retractions(each.panes) for each in outputs),
            watermark=known_time(progress.watermark),
            ended=progress.watermark == FOREVER,
            held_by=held_by(parts),
            partitions=_shown(parts, lags),
            partition_count=len(parts),
            lag_records=sum(each.records for each in lags.values()) if lags else None,
            lag_seconds=max(known) if known else None,
            latency=latencies(spoken, batch.at, front),
            stages=stages_of(batch.took, batch.measured.seconds, (spark or {}).get("durationMs", {}), self.cores),
            busy=dict(batch.measured.seconds),
            steps=tuple(_steps(batch)),
            hot=self._hot(batch),
            lateness=histogram(batch.measured.behind),
            reasons={reason: many for reason, (many, _) in batch.reasons.items()},
            refused=batch.refused,
            retries=retries,
            budget=budget,
        )

    def _hot(self, batch: Delivered) -> tuple[HotKey, ...]:
        found = []
        for step, counts in batch.measured.hot.items():
            sketch = self.hot.setdefault(step, HeavyHitters())
            sketch.add(counts, batch.counts.get(step, Counts()).read)
        for step, sketch in self.hot.items():
            found += [HotKey(step, key, many, share) for key, many, share in sketch.top(SHOWN_KEYS)]
        return tuple(sorted(found, key=lambda each: -each.count)[:SHOWN_KEYS])


def known_time(ms: int) -> int | None:
    return None if ms in (NEVER, FOREVER) else ms


def named_partitions(progress: Progress) -> dict[str, PartitionProgress]:
    """Every partition of every source by name; those of several inputs by the input's name too, if names meet."""
    if not progress.inputs:
        return {name or ALONE: each for name, each in progress.partitions.items()}
    found: dict[str, PartitionProgress] = {}
    for source, told in progress.inputs.items():
        for name, each in told.partitions.items():
            found[name if name and name not in found else f"{source} {name}".strip()] = each
    return found


def held_by(partitions: Mapping[str, PartitionProgress]) -> str | None:
    """The partition that the watermark waits for: the last of those that count."""
    counting = [(each.watermark, name) for name, each in partitions.items() if each.counts]
    return min(counting)[1] if counting else None


def _shown(partitions: Mapping[str, PartitionProgress], lags: Mapping[str, Lag]) -> tuple[PartitionMetrics, ...]:
    """Each partition, by name; of very many, those that are furthest behind or have fallen idle."""
    told = [_partition(name, each, lags.get(name)) for name, each in partitions.items()]
    told += [
        PartitionMetrics(name, lag_records=each.records, lag_seconds=each.seconds)
        for name, each in lags.items()
        if name not in partitions
    ]
    told.sort(key=lambda each: (not each.idle, each.watermark or NEVER, -(each.lag_records or 0)))
    return tuple(sorted(told[:SHOWN_PARTITIONS], key=lambda each: _natural(each.name)))


def _natural(name: str) -> tuple[str, int, str]:
    """Partition 10 comes after partition 9."""
    head, _, tail = name.rpartition("-")
    return (head, int(tail), "") if tail.isdecimal() else (name, -1, name)


def _partition(name: str, each: PartitionProgress, lag: Lag | None) -> PartitionMetrics:
    return PartitionMetrics(
        name,
        event_time=known_time(each.highest),
        watermark=known_time(each.watermark),
        heard=each.heard or None,
        idle=each.idle,
        finished=each.finished,
        lag_records=None if lag is None else lag.records,
        lag_seconds=None if lag is None else lag.seconds,
    )


def _steps(batch: Delivered) -> Iterable[StepMetrics]:
    for number, step in sorted(batch.steps.items()):
        name = step_name(number)
        yield StepMetrics(
            name,
            known_time(step.progress.watermark),
            known_time(step.output_watermark),
            step.rows,
            step.size,
            batch.counts.get(name, Counts()),
            step.groups,
        )


def by_timing(outputs: Sequence[Output]) -> list[tuple[str, pl.DataFrame, int]]:
    """The times of panes, those of each timing together; in a batch they are almost always all of one."""
    away = ((each.some, sum(part.rows for part in each.parts)) for each in outputs)
    found = [(ELEMENT, some, many) for some, many in away if some is not None]
    for panes in (each.panes for each in outputs if each.panes is not None):
        left = panes.select(name for name in (TIMING, END, AT) if name in panes.columns)
        if TIMING not in left.columns:
            found.append((ELEMENT, panes, panes.height))
            continue
        while left.height:
            timing = left[TIMING][0]
            mine = left[TIMING] == timing
            one = bool(mine.all())
            these = left if one else left.filter(mine)
            found.append((timing, these, these.height))
            left = left.clear() if one else left.filter(~mine)
    return found


def _counted(spoken: Spoken) -> dict[str, int]:
    found: dict[str, int] = {}
    for timing, _, many in spoken:
        if many:
            found[timing] = found.get(timing, 0) + many
    return found


def _retractions(panes: pl.DataFrame | None) -> int:
    return 0 if panes is None or RETRACTION not in panes.columns else int(panes[RETRACTION].sum())


def latencies(spoken: Spoken, at: int, front: int) -> dict[str, Histogram]:
    """From event time to visible, by timing; of very many panes some are asked.

    A pane's event time is its window's last instant or, while that lies ahead, the highest event time seen.
    """
    found: dict[str, Histogram] = {}
    for timing, panes, all_of_them in spoken:
        step = 1 + panes.height // _SAMPLED
        if timing != ELEMENT and END in panes.columns:
            times = np.minimum(panes[END].gather_every(step).to_numpy() - 1, front)
        elif AT in panes.columns:
            times = panes[AT].gather_every(step).drop_nulls().to_numpy()
        else:
            continue
        if times.size:
            many = np.bincount(buckets(at - times)) * step * max(all_of_them // panes.height, 1)
            counted = tuple((int(bucket), int(many[bucket])) for bucket in np.flatnonzero(many))
            found[timing] = found.get(timing, Histogram()) + Histogram(counted)
    return found


def stages_of(
    took: Mapping[str, float], busy: Mapping[str, float], spark: Mapping[str, Any], cores: int
) -> dict[str, float]:
    """Where the time of a batch went, stage by stage.

    What tasks did, they did side by side: their seconds are divided by the cores, and what is left of the time that a
    batch was played is the shuffle, and Spark itself.
    """
    ms = {name: float(each) / 1000 for name, each in spark.items()}
    played = took.get("play", 0.0)
    mine = {name: busy.get(name, 0.0) / max(cores, 1) for name in _PLAY}
    known = sum(mine.values())
    if known > played > 0:
        mine = {name: each * played / known for name, each in mine.items()}
    written = mine.pop(_WRITE)
    told = {
        "source": ms.get("latestOffset", 0.0) + ms.get("getBatch", 0.0),
        "plan": ms.get("queryPlanning", 0.0),
        **mine,
        "shuffle": max(played - known, 0.0),
        "deliver": took.get("deliver", 0.0) + written,
        "commit": ms.get("walCommit", 0.0) + ms.get("commitOffsets", 0.0) + ms.get("commitBatch", 0.0),
    }
    return {name: each for name, each in told.items() if each}
