"""Watermarks in band: every task tells every key group what it saw of each partition, and all fold it alike.

The fold is a pure function of the control rows and the batch's clock, so a batch that is played again finds the same
watermark, and every key group the same one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from strandline.errors import Unsupported
from strandline.model.elements import BEGINNING, END
from strandline.model.watermarks import Bounded, OnReturn, Watermark

NEVER: Final = BEGINNING.ms
FOREVER: Final = END.ms


@dataclass(frozen=True, slots=True)
class Seen:
    """What one task saw of one partition in one batch."""

    partition: str
    rows: int = 0
    highest: int | None = None
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Control:
    """What one task saw in one batch, and the batch's clock in milliseconds."""

    clock: int
    seen: tuple[Seen, ...] = ()
    drain: bool = False


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """How far a partition has come: its watermark, when it was last heard, whether it has ended."""

    watermark: int = NEVER
    heard: int = 0
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a source has come."""

    watermark: int = NEVER
    clock: int = NEVER
    partitions: Mapping[str, PartitionProgress] = field(default_factory=dict)
    idle: tuple[str, ...] = ()


def advance(before: Progress, controls: Iterable[Control], expected: Iterable[str], ask: Watermark) -> Progress:
    """The progress after a batch: partitions are heard, fall idle or end; their least is the watermark."""
    if not isinstance(ask.generator, Bounded) or ask.on_return is not OnReturn.WAIT:
        raise Unsupported("the kernel plays bounded watermarks only, so far", hint="use bounded(…)")
    controls = list(controls)
    clock = max([before.clock, *(control.clock for control in controls)])
    partitions = {name: PartitionProgress(heard=clock) for name in expected} | dict(before.partitions)
    for control in controls:
        for seen in control.seen:
            partitions[seen.partition] = _heard(partitions.get(seen.partition), seen, clock, ask)
    live = {name: state for name, state in partitions.items() if not state.finished}
    idle = tuple(sorted(name for name, state in live.items() if _is_idle(state, clock, ask)))
    if any(control.drain for control in controls) or (partitions and not live):
        reached = FOREVER
    else:
        active = [state.watermark for name, state in live.items() if name not in idle]
        reached = min(active) if active else max((state.watermark for state in live.values()), default=NEVER)
    return Progress(max(before.watermark, reached), clock, partitions, idle)


def _heard(before: PartitionProgress | None, seen: Seen, clock: int, ask: Watermark) -> PartitionProgress:
    state = before or PartitionProgress(heard=clock)
    if seen.highest is not None and isinstance(ask.generator, Bounded):
        counted = seen.highest if ask.future is None else min(seen.highest, clock + ask.future.ahead.ms)
        state = replace(state, watermark=max(state.watermark, counted - ask.generator.delay.ms - 1))
    heard = clock if seen.rows else state.heard
    return replace(state, heard=heard, finished=state.finished or seen.finished)


def _is_idle(state: PartitionProgress, clock: int, ask: Watermark) -> bool:
    return ask.idle is not None and clock - state.heard > ask.idle.ms


def control_to_facts(control: Control) -> dict[str, Any]:
    """A control as plain values, for a block."""
    seen = [[each.partition, each.rows, each.highest, each.finished] for each in control.seen]
    return {"clock": control.clock, "seen": seen, "drain": control.drain}


def control_from_facts(facts: Mapping[str, Any]) -> Control:
    return Control(facts["clock"], tuple(Seen(*each) for each in facts["seen"]), facts["drain"])


def progress_to_facts(progress: Progress) -> dict[str, Any]:
    """A progress as plain values, for a block."""
    partitions = {name: [state.watermark, state.heard, state.finished] for name, state in progress.partitions.items()}
    return {"watermark": progress.watermark, "clock": progress.clock, "partitions": partitions,
            "idle": list(progress.idle)}  # fmt: skip


def progress_from_facts(facts: Mapping[str, Any]) -> Progress:
    partitions = {name: PartitionProgress(*state) for name, state in facts["partitions"].items()}
    return Progress(facts["watermark"], facts["clock"], partitions, tuple(facts["idle"]))
