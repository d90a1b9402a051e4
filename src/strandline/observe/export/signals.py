"""The golden numbers as signals: each with a name, what it is, and values by label, for those who collect them."""

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
    """A number, or several that differ in the values of their labels."""

    name: str
    said: str
    values: Mapping[Labels, float]
    labels: Labels = field(default=())
    unit: str = ""


def counters(told: BatchMetrics) -> Iterator[Signal]:
    """What is counted: of a batch, or of several folded into one."""
    outcomes: dict[Labels, float] = {(name,): float(getattr(told.counts, name)) for name in COUNTED}
    yield Signal("elements", "Elements that came in, by what became of them.", outcomes, ("outcome",))
    yield Signal("rows", "Rows that went out, by timing.", _by(told.out), ("timing",))
    spent = "Where the time of batches went, by stage."
    yield Signal("stage_seconds", spent, _by(told.stages), ("stage",), "s")
    yield Signal("dead_letters", "Dead letters, by reason.", _by(told.reasons), ("reason",))
    yield Signal("batches", "Batches in their sinks.", {(): told.batches})
    yield Signal("retries", "How often a batch had to wait for a sink or a registry.", {(): told.retries})
    yield Signal("retractions", "Rows that took others back.", {(): told.retractions})


def gauges(last: BatchMetrics, state: JobState) -> Iterator[Signal]:
    """How things stand after the last batch; what is not known is left out."""
    for name, said, unit, value in (
        ("lag_records", "Records in the sources that were not read yet.", "", last.lag_records),
        ("lag_seconds", "How long ago the oldest of them came.", "s", last.lag_seconds),
        ("watermark_delay_seconds", "How far the watermark is behind the clock.", "s", last.behind_seconds),
        ("batch_seconds", "How long the last batch took.", "s", last.took),
        ("state_rows", "Windows that are kept, or strips that they share.", "", last.state_rows),
        ("state_bytes", "Bytes of state.", "By", last.state_bytes),
        ("idle_partitions", "Partitions that no longer hold the watermark back.", "", len(last.idle)),
        ("failure_budget_spent", "The share of the failure budget that is spent.", "", last.budget),
        ("up", "Whether the job is at work.", "", int(state.is_alive)),
    ):
        if value is not None:
            yield Signal(name, said, {(): value}, unit=unit)
    latency: dict[Labels, float] = {
        (timing, str(quantile)): last.latency_seconds(quantile, timing) or 0.0
        for timing in last.latency
        for quantile in QUANTILES
    }
    said = "From event time to visible in the sink, in the last batch that said something."
    yield Signal("latency_seconds", said, latency, ("timing", "quantile"), "s")


def _by(values: Mapping[str, float]) -> dict[Labels, float]:
    return {(name,): value for name, value in values.items()}
