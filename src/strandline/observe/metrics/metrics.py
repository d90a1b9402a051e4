"""Define the numbers of a batch as plain values: elements in and out, event time progress, and durations.

`docs/explanation/golden-metrics.md` defines each. Times are milliseconds since the epoch, durations are seconds.
Several batches fold into one of the same form, so that old ones take less space and read the same.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce

from strandline.model.counts import Counts, InputCounts
from strandline.model.histograms import Histogram

TIMINGS = ("early", "on_time", "late", "element")
"""The timings of panes; an element that passed no window counts as `element`."""

STAGES = ("source", "plan", "read", "prepare", "shuffle", "state", "step", "deliver", "commit")
"""The stages of a batch, in order: see `Stage times` among the golden metrics."""


@dataclass(frozen=True, slots=True)
class PartitionMetrics:
    """One partition of a source: its event time progress, whether it is idle, and its lag."""

    name: str
    event_time: int | None = None
    """The highest event time seen."""
    watermark: int | None = None
    heard: int | None = None
    """When it last sent a record, by the batch clock."""
    idle: bool = False
    finished: bool = False
    lag_records: int | None = None
    lag_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class StepMetrics:
    """A keyed step: its watermarks, its state size, and the elements of each key group."""

    name: str
    watermark: int | None = None
    output_watermark: int | None = None
    rows: int = 0
    """Windows, or the slices that they share."""
    bytes: int | None = None
    counts: Counts = Counts()
    groups: tuple[int, ...] = ()
    """Elements per key group."""
    inputs: Mapping[str, InputCounts] = field(default_factory=dict)
    """By role: what a join did with the rows of each side."""


@dataclass(frozen=True, slots=True)
class HotKey:
    """A frequent key of a step, with its approximate number of elements."""

    step: str
    key: str
    count: int
    share: float = 0.0


@dataclass(frozen=True, slots=True)
class BatchMetrics:
    """A delivered batch; or several folded into one, with the identity of the last."""

    batch: int
    at: int
    """When the sinks had committed it."""
    clock: int
    """The processing time of the batch."""
    batches: int = 1
    seconds: float = 0.0
    """Seconds since the previous batch was committed; rates are over this time."""
    counts: Counts = Counts()
    out: Mapping[str, int] = field(default_factory=dict)
    """Rows by timing."""
    retractions: int = 0
    watermark: int | None = None
    """None before the first watermark, and once the stream has ended."""
    ended: bool = False
    held_by: str | None = None
    """The partition that holds the watermark back."""
    partitions: tuple[PartitionMetrics, ...] = ()
    """A selection, if there are very many."""
    partition_count: int = 0
    lag_records: int | None = None
    lag_seconds: float | None = None
    latency: Mapping[str, Histogram] = field(default_factory=dict)
    """By timing: from event time to visible in the sink."""
    stages: Mapping[str, float] = field(default_factory=dict)
    """Seconds of the batch's duration, by stage."""
    busy: Mapping[str, float] = field(default_factory=dict)
    """Seconds of all tasks together, by stage."""
    steps: tuple[StepMetrics, ...] = ()
    hot: tuple[HotKey, ...] = ()
    lateness: Histogram = Histogram()
    """How far elements were behind the highest event time of their stream."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Dead letters by reason."""
    refused: int = 0
    retries: int = 0
    """How often a batch waited for a sink or a registry."""
    budget: float | None = None
    """The share of the failure budget that is spent; None if there is no budget."""

    @property
    def emitted(self) -> int:
        return sum(self.out.values())

    @property
    def took(self) -> float:
        """Seconds from the batch's start to its end, on average if several are folded."""
        return sum(self.stages.values()) / self.batches

    @property
    def read_per_second(self) -> float:
        return self.counts.read / self.seconds if self.seconds else 0.0

    @property
    def emitted_per_second(self) -> float:
        return self.emitted / self.seconds if self.seconds else 0.0

    @property
    def behind_seconds(self) -> float | None:
        """How far the watermark is behind the clock."""
        return None if self.watermark is None else (self.clock - self.watermark) / 1000

    @property
    def late_share(self) -> float:
        return self.counts.late / self.counts.offered if self.counts.offered else 0.0

    @property
    def state_rows(self) -> int:
        return sum(step.rows for step in self.steps)

    @property
    def state_bytes(self) -> int | None:
        known = [step.bytes for step in self.steps if step.bytes is not None]
        return sum(known) if known else None

    @property
    def idle(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.partitions if each.idle and not each.finished)

    def latency_seconds(self, share: float, timing: str | None = None) -> float | None:
        """A percentile of the latency, of one timing or of all rows."""
        chosen = self.latency.values() if timing is None else [self.latency.get(timing, Histogram())]
        found = reduce(Histogram.__add__, chosen, Histogram()).percentile(share)
        return None if found is None else found / 1000


def fold(one: BatchMetrics, later: BatchMetrics) -> BatchMetrics:
    """Fold two into one: amounts are added up, and states are those of the later one."""
    steps = {step.name: step for step in one.steps}
    return replace(
        later,
        batches=one.batches + later.batches,
        seconds=one.seconds + later.seconds,
        counts=one.counts + later.counts,
        out=_sum(one.out, later.out),
        retractions=one.retractions + later.retractions,
        latency=_together(one.latency, later.latency),
        stages=_sum_seconds(one.stages, later.stages),
        busy=_sum_seconds(one.busy, later.busy),
        steps=tuple(_folded(steps.get(step.name), step) for step in later.steps),
        lateness=one.lateness + later.lateness,
        reasons=_sum(one.reasons, later.reasons),
        refused=one.refused + later.refused,
        retries=one.retries + later.retries,
    )


def without_partitions(metrics: BatchMetrics) -> BatchMetrics:
    """Remove partitions and hot keys, which take most space and change slowly."""
    return replace(metrics, partitions=(), hot=())


def with_partitions(metrics: BatchMetrics, other: BatchMetrics | None) -> BatchMetrics:
    """Add partitions and hot keys of a nearby time."""
    return metrics if other is None else replace(metrics, partitions=other.partitions, hot=other.hot)


def _folded(one: StepMetrics | None, later: StepMetrics) -> StepMetrics:
    if one is None:
        return later
    alike = len(one.groups) == len(later.groups)
    groups = tuple(map(sum, zip(one.groups, later.groups, strict=True))) if alike else later.groups
    inputs = {role: one.inputs[role].then(each) if role in one.inputs else each for role, each in later.inputs.items()}
    return replace(later, counts=one.counts + later.counts, groups=groups, inputs=inputs)


def _together(one: Mapping[str, Histogram], other: Mapping[str, Histogram]) -> dict[str, Histogram]:
    names = {**one, **other}
    return {name: one.get(name, Histogram()) + other.get(name, Histogram()) for name in names}


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return dict(Counter(one) + Counter(other))


def _sum_seconds(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {name: one.get(name, 0.0) + other.get(name, 0.0) for name in {**one, **other}}
