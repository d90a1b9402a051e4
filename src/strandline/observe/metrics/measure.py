"""Compute the numbers of a batch from the delivered batch and Spark's progress report."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import polars as pl

from strandline.execution.task_metrics import buckets
from strandline.kernel.blocks.block import AT, END
from strandline.kernel.output import Output
from strandline.kernel.watermarks import FOREVER, NEVER, PartitionProgress, Progress
from strandline.kernel.window.panes import RETRACTION, TIMING
from strandline.model.counts import Counts
from strandline.model.histograms import Histogram, histogram
from strandline.observe.metrics.lag import EndHistory, Lag, positions_in
from strandline.observe.metrics.metrics import BatchMetrics, HotKey, PartitionMetrics, StepMetrics
from strandline.observe.metrics.space_saving import HeavyHitters
from strandline.plan.stages import step_name
from strandline.spark.delivery.deliver import Delivered

SHOWN_PARTITIONS: Final = 64
SHOWN_KEYS: Final = 10
ELEMENT: Final = "element"
ONLY_PARTITION: Final = "input"
"""Name of a source's only partition, which has no name."""

PanesByTiming = Sequence[tuple[str, pl.DataFrame, int]]
"""Panes by timing, and how many rows they represent: of elements that tasks wrote, only a sample is here."""

_SAMPLED: Final = 4_096
_WRITE: Final = "write"
_PLAY: Final = ("read", "prepare", "state", "step", _WRITE)


@dataclass(slots=True)
class Meter:
    """State that is kept between batches."""

    cores: int = 1
    following: EndHistory = field(default_factory=EndHistory)
    hot: dict[str, HeavyHitters] = field(default_factory=dict)
    _before: int | None = None

    def measure(
        self, batch: Delivered, spark: Mapping[str, Any] | None, *, retries: int = 0, budget: float | None = None
    ) -> BatchMetrics:
        """Compute a batch's numbers; without Spark's report where that is missing."""
        progress, outputs = batch.output.progress, batch.outputs or (batch.output,)
        parts, panes_by_timing = named_partitions(progress), by_timing(outputs)
        positions = batch.positions or positions_in((spark or {}).get("sources", ()))
        lags = self.following.lags(positions, progress.clock)
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
            out=_rows_by_timing(panes_by_timing),
            retractions=sum(_retractions(each.panes) for each in outputs),
            watermark=known_time(progress.watermark),
            ended=progress.watermark == FOREVER,
            held_by=held_by(parts),
            partitions=_shown(parts, lags),
            partition_count=len(parts),
            lag_records=sum(each.records for each in lags.values()) if lags else None,
            lag_seconds=max(known) if known else None,
            latency=latencies(panes_by_timing, batch.at, front),
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
    """Every partition of every source by name; with the input's name too, if names of several inputs clash."""
    if not progress.inputs:
        return {name or ONLY_PARTITION: each for name, each in progress.partitions.items()}
    found: dict[str, PartitionProgress] = {}
    for source, progress_of_input in progress.inputs.items():
        for name, each in progress_of_input.partitions.items():
            found[name if name and name not in found else f"{source} {name}".strip()] = each
    return found


def held_by(partitions: Mapping[str, PartitionProgress]) -> str | None:
    """The partition that the watermark waits for: the slowest of those that count."""
    counting = [(each.watermark, name) for name, each in partitions.items() if each.counts]
    return min(counting)[1] if counting else None


def _shown(partitions: Mapping[str, PartitionProgress], lags: Mapping[str, Lag]) -> tuple[PartitionMetrics, ...]:
    """Each partition by name; of very many, those that are furthest behind or idle."""
    shown = [_partition(name, each, lags.get(name)) for name, each in partitions.items()]
    shown += [
        PartitionMetrics(name, lag_records=each.records, lag_seconds=each.seconds)
        for name, each in lags.items()
        if name not in partitions
    ]
    shown.sort(key=lambda each: (not each.idle, each.watermark or NEVER, -(each.lag_records or 0)))
    return tuple(sorted(shown[:SHOWN_PARTITIONS], key=lambda each: _natural(each.name)))


def _natural(name: str) -> tuple[str, int, str]:
    """Sort partition 10 after partition 9."""
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
            step.inputs,
        )


def by_timing(outputs: Sequence[Output]) -> list[tuple[str, pl.DataFrame, int]]:
    """Group the times of panes by timing; a batch nearly always has a single timing."""
    away = ((each.some, sum(part.rows for part in each.parts)) for each in outputs)
    found = [(ELEMENT, some, many) for some, many in away if some is not None]
    for panes in (each.panes for each in outputs if each.panes is not None):
        left = panes.select(name for name in (TIMING, END, AT) if name in panes.columns)
        if TIMING not in left.columns:
            found.append((ELEMENT, panes, panes.height))
            continue
        while left.height:
            timing = left[TIMING][0]
            same = left[TIMING] == timing
            all_same = bool(same.all())
            group = left if all_same else left.filter(same)
            found.append((timing, group, group.height))
            left = left.clear() if all_same else left.filter(~same)
    return found


def _rows_by_timing(panes_by_timing: PanesByTiming) -> dict[str, int]:
    found: dict[str, int] = {}
    for timing, _, many in panes_by_timing:
        if many:
            found[timing] = found.get(timing, 0) + many
    return found


def _retractions(panes: pl.DataFrame | None) -> int:
    return 0 if panes is None or RETRACTION not in panes.columns else int(panes[RETRACTION].sum())


def latencies(panes_by_timing: PanesByTiming, at: int, front: int) -> dict[str, Histogram]:
    """Latency from event time to visible, by timing; sampled if there are very many panes.

    A pane's event time is its window's last instant or, while that is in the future, the highest event time seen.
    """
    found: dict[str, Histogram] = {}
    for timing, panes, all_of_them in panes_by_timing:
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
    """Time of a batch by stage.

    Tasks run in parallel, so their seconds are divided by the cores. The rest of the batch's run time is the shuffle,
    and Spark itself.
    """
    ms = {name: float(each) / 1000 for name, each in spark.items()}
    played = took.get("play", 0.0)
    in_tasks = {name: busy.get(name, 0.0) / max(cores, 1) for name in _PLAY}
    known = sum(in_tasks.values())
    if known > played > 0:
        in_tasks = {name: each * played / known for name, each in in_tasks.items()}
    written = in_tasks.pop(_WRITE)
    stages = {
        "source": ms.get("latestOffset", 0.0) + ms.get("getBatch", 0.0),
        "plan": ms.get("queryPlanning", 0.0),
        **in_tasks,
        "shuffle": max(played - known, 0.0),
        "deliver": took.get("deliver", 0.0) + written,
        "commit": ms.get("walCommit", 0.0) + ms.get("commitOffsets", 0.0) + ms.get("commitBatch", 0.0),
    }
    return {name: each for name, each in stages.items() if each}
