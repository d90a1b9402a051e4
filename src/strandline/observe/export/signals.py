"""Define the exported metrics: name, description, and values by label."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from strandline.model.counts import COUNTED
from strandline.observe.metrics.history import JobState
from strandline.observe.metrics.metrics import BatchMetrics

QUANTILES: Final = (0.5, 0.95, 0.99)

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Signal:
    """A metric with one value per combination of labels."""

    name: str
    description: str
    values: Mapping[Labels, float]
    labels: Labels = field(default=())
    unit: str = ""


def counters(metrics: BatchMetrics) -> Iterator[Signal]:
    """Counters of a batch, or of several batches that are folded into one."""
    outcomes: dict[Labels, float] = {(name,): float(getattr(metrics.counts, name)) for name in COUNTED}
    yield Signal("elements", "Elements that were read, by outcome.", outcomes, ("outcome",))
    yield Signal("rows", "Rows that were emitted, by timing.", _by_label(metrics.out), ("timing",))
    spent = "Time spent on batches, by stage."
    yield Signal("stage_seconds", spent, _by_label(metrics.stages), ("stage",), "s")
    yield Signal("dead_letters", "Dead letters, by reason.", _by_label(metrics.reasons), ("reason",))
    yield Signal("batches", "Batches that were committed to the sinks.", {(): metrics.batches})
    yield Signal("retries", "How often a batch had to wait for a sink or a registry.", {(): metrics.retries})
    yield Signal("retractions", "Retractions that were emitted.", {(): metrics.retractions})


def gauges(last: BatchMetrics, state: JobState) -> Iterator[Signal]:
    """Gauges after the last batch; unknown values are left out."""
    for name, description, unit, value in (
        ("lag_records", "Records in the sources that are not read yet.", "", last.lag_records),
        ("lag_seconds", "Age of the oldest record that is not read yet.", "s", last.lag_seconds),
        ("watermark_delay_seconds", "How far the watermark is behind the clock.", "s", last.behind_seconds),
        ("batch_seconds", "How long the last batch took.", "s", last.took),
        ("state_rows", "Windows in state, or the slices that they share.", "", last.state_rows),
        ("state_bytes", "Bytes of state.", "By", last.state_bytes),
        ("idle_partitions", "Partitions that no longer hold the watermark back.", "", len(last.idle)),
        ("failure_budget_spent", "Share of the failure budget that is spent.", "", last.budget),
        ("up", "Whether the job is running.", "", int(state.is_alive)),
    ):
        if value is not None:
            yield Signal(name, description, {(): value}, unit=unit)
    latency: dict[Labels, float] = {
        (timing, str(quantile)): last.latency_seconds(quantile, timing) or 0.0
        for timing in last.latency
        for quantile in QUANTILES
    }
    description = "From event time to visible in the sink, in the last batch that emitted rows."
    yield Signal("latency_seconds", description, latency, ("timing", "quantile"), "s")


def _by_label(values: Mapping[str, float]) -> dict[Labels, float]:
    return {(name,): value for name, value in values.items()}
