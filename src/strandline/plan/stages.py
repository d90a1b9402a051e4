"""What a player executes: one list of stages, which is both explained and run."""

from dataclasses import dataclass

from strandline.model.steps import WindowedStep
from strandline.model.watermarks import Watermark
from strandline.plan.endpoints import Delivery, Sink, Source


@dataclass(frozen=True, slots=True)
class Scan:
    """Reads a source and names the column that holds the event time, or none where the clock is the time."""

    source: Source
    event_time: str | None


@dataclass(frozen=True, slots=True)
class Prepare:
    """In every partition: decode, assign windows, combine, pack a block for each key group."""

    keys: tuple[str, ...]
    step: WindowedStep
    watermark: Watermark
    groups: int


@dataclass(frozen=True, slots=True)
class KeyedStep:
    """In every key group: fold the watermark, add, fire, expire."""

    keys: tuple[str, ...]
    step: WindowedStep
    watermark: Watermark
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Deliver:
    """On the driver, once a batch: panes, late elements and dead letters under one ledger entry."""

    sink: Sink
    delivery: Delivery


@dataclass(frozen=True, slots=True)
class Stages:
    """The path of a batch."""

    scan: Scan
    prepare: Prepare
    keyed: KeyedStep
    deliver: Deliver
    fingerprint: str
