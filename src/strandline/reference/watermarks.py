"""Compute the watermark of each partition or input, and their combined watermark, which never falls.

Partitions of a source and inputs of a step follow the same path. Where the rules differ (on return from idleness, on
what counts as activity, when all are idle) the code matches on the rule, a Watermark or Inputs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from strandline.model.elements import BEGINNING, END, EPOCH, INSTANT, Duration, Element, Timestamp
from strandline.model.watermarks import (
    Bounded,
    ByClock,
    FromSource,
    FutureBound,
    Inputs,
    OnReturn,
    Percentile,
    Watermark,
)

Rule = Watermark | Inputs

Lags = tuple[tuple[Timestamp, Duration], ...]
"""The samples of a percentile watermark: how far elements were behind, each with the clock of its batch."""


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition or input: its own watermark, the clock at its last activity, and whether it counts."""

    watermark: Timestamp = BEGINNING
    heard: Timestamp = EPOCH
    idle: bool = False
    finished: bool = False
    returning: bool = False
    """Back from idleness and excluded until it has caught up."""
    highest: Timestamp = BEGINNING
    lags: Lags = ()

    @property
    def is_active(self) -> bool:
        return not self.idle and not self.finished

    @property
    def counts(self) -> bool:
        return self.is_active and not self.returning


@dataclass(frozen=True, slots=True)
class Progress:
    """The partitions known so far, and their combined watermark."""

    partitions: Mapping[str, Partition] = field(default_factory=dict)
    watermark: Timestamp = BEGINNING

    @property
    def is_idle(self) -> bool:
        """Return whether all partitions that have not ended are idle."""
        unfinished = [partition for partition in self.partitions.values() if not partition.finished]
        return bool(unfinished) and all(partition.idle for partition in unfinished)


def begin(names: Iterable[str]) -> Progress:
    """Return partitions known from the start: active, and holding the watermark back until their first activity."""
    return Progress({name: Partition() for name in names})


def on_rows(rule: Rule, progress: Progress, elements: Iterable[Element], clock: Timestamp) -> Progress:
    """Elements activate their partitions and, if the generator observes elements, advance their watermarks."""
    by_partition: dict[str, list[Element]] = {}
    for element in elements:
        by_partition.setdefault(element.partition, []).append(element)
    partitions = dict(progress.partitions)
    for name, rows in by_partition.items():
        if name in partitions or _may_join(rule, name):
            partition = _activated(rule, partitions.get(name, Partition(heard=clock)), progress.watermark, clock)
            partitions[name] = _observed(rule, partition, rows, clock)
    return _recomputed(rule, progress, partitions, clock)


def _may_join(rule: Rule, name: str) -> bool:
    """Return whether elements can add a partition. Inputs are fixed; rows without a name add none for FromSource."""
    return isinstance(rule, Watermark) and (name != "" or not isinstance(rule.generator, FromSource))


def on_watermark(rule: Rule, progress: Progress, name: str, to: Timestamp, clock: Timestamp) -> Progress:
    """Set a partition's watermark and activate it; watermarks of an idle input are ignored."""
    partition = progress.partitions.get(name, Partition(heard=clock))
    if isinstance(rule, Inputs) and partition.idle:
        return _recomputed(rule, progress, progress.partitions, clock)
    awake = _activated(rule, partition, progress.watermark, clock)
    advanced = replace(awake, watermark=max(awake.watermark, to))
    return _recomputed(rule, progress, {**progress.partitions, name: advanced}, clock)


def on_idle(rule: Rule, progress: Progress, name: str, clock: Timestamp) -> Progress:
    """Mark a partition as idle; it no longer holds the watermark back."""
    silent = replace(progress.partitions[name], idle=True, returning=False)
    return _recomputed(rule, progress, {**progress.partitions, name: silent}, clock)


def on_active(rule: Rule, progress: Progress, name: str, clock: Timestamp) -> Progress:
    """Mark a partition as active, again or for the first time."""
    awake = _activated(rule, progress.partitions.get(name, Partition(heard=clock)), progress.watermark, clock)
    return _recomputed(rule, progress, {**progress.partitions, name: awake}, clock)


def on_finish(rule: Rule, progress: Progress, name: str, clock: Timestamp) -> Progress:
    """Mark a partition as ended; when all have ended, the watermark is at the end of time."""
    ended = replace(progress.partitions[name], finished=True)
    return _recomputed(rule, progress, {**progress.partitions, name: ended}, clock)


def on_inputs(
    rule: Inputs, progress: Progress, reached: Mapping[str, tuple[Timestamp, bool]], clock: Timestamp
) -> Progress:
    """Set the watermarks of inputs at once, each with whether it is idle. An input at the end of time has ended."""
    partitions = dict(progress.partitions)
    for name, (watermark, is_idle) in reached.items():
        known = partitions.get(name, Partition(heard=clock))
        if is_idle:
            after = replace(known, idle=True, returning=False)
        else:
            awake = _activated(rule, known, progress.watermark, clock)
            after = replace(awake, watermark=max(awake.watermark, watermark))
        partitions[name] = replace(after, finished=after.finished or watermark == END)
    return _recomputed(rule, progress, partitions, clock)


def on_clock(rule: Rule, progress: Progress, clock: Timestamp) -> Progress:
    """Advance the clock: partitions without recent activity become idle."""
    return _recomputed(rule, progress, progress.partitions, clock)


def on_drain(progress: Progress) -> Progress:
    """End all input."""
    return replace(progress, watermark=END)


def counted_time(future: FutureBound | None, at: Timestamp, clock: Timestamp) -> Timestamp:
    """Return the event time that the watermark uses: at most the bound ahead of the clock."""
    return at if future is None else min(at, clock + future.ahead)


def is_dead_lettered(future: FutureBound | None, at: Timestamp, clock: Timestamp) -> bool:
    """Return whether an event is so far in the future that it is dead-lettered; then it does not move the watermark."""
    return future is not None and future.dead_letter and counted_time(future, at, clock) < at


def _activated(rule: Rule, partition: Partition, watermark: Timestamp, clock: Timestamp) -> Partition:
    """Mark activity now. A partition back from idleness counts again at once, or after it has caught up."""
    late = partition.idle and rule.on_return is OnReturn.CATCH_UP and partition.watermark < watermark
    return replace(partition, heard=clock, idle=False, returning=partition.returning or late)


def _observed(rule: Rule, partition: Partition, rows: Iterable[Element], clock: Timestamp) -> Partition:
    """Advance a partition's watermark by a batch of its elements, in their order."""
    if isinstance(rule, Inputs) or isinstance(rule.generator, FromSource | ByClock):
        return partition
    for element in rows:
        if not element.at.is_end and not is_dead_lettered(rule.future, element.at, clock):
            partition = _seen(partition, counted_time(rule.future, element.at, clock), clock)
    waits, lags = _delay(rule.generator, partition.lags, clock)
    return replace(partition, watermark=max(partition.watermark, partition.highest - waits - INSTANT), lags=lags)


def _delay(generator: Bounded | Percentile, lags: Lags, clock: Timestamp) -> tuple[Duration, Lags]:
    """Return a generator's delay, and the samples it still needs."""
    match generator:
        case Bounded(delay):
            return delay, ()
        case Percentile(horizon=horizon):
            recent = tuple((when, lag) for when, lag in lags if when + horizon >= clock)
            return _quantile(generator, [lag for _, lag in recent]), recent
    assert_never(generator)


def _seen(partition: Partition, at: Timestamp, clock: Timestamp) -> Partition:
    """Record one element: its time if that is the highest, and its lag, rounded up to five binary digits."""
    highest = max(partition.highest, at)
    lag = highest.ms - at.ms
    shift = max(lag.bit_length() - 5, 0)
    rounded = Duration(-(-lag >> shift) << shift)
    return replace(partition, highest=highest, lags=(*partition.lags, (clock, rounded)))


def _quantile(ask: Percentile, lags: list[Duration]) -> Duration:
    """Return the smallest lag that at least the share p of the samples do not exceed, within the configured bounds."""
    if len(lags) < ask.enough:
        return ask.first
    ranked = sorted(lags)
    within = next(lag for place, lag in enumerate(ranked, 1) if place / len(ranked) >= ask.p)
    return min(max(within, ask.least), ask.most)


def _recomputed(rule: Rule, before: Progress, partitions: Mapping[str, Partition], clock: Timestamp) -> Progress:
    """Update idle and caught-up partitions, and the combined watermark; it never falls."""
    settled = {name: _settled(rule, each, before.watermark, clock) for name, each in partitions.items()}
    watermark = max(before.watermark, _combined(rule, before, settled, clock))
    return Progress(settled, watermark)


def _settled(rule: Rule, partition: Partition, watermark: Timestamp, clock: Timestamp) -> Partition:
    silence = rule.idle if isinstance(rule, Watermark) else None
    if silence is not None and clock > partition.heard + silence:
        return replace(partition, idle=True, returning=False)
    caught_up = partition.returning and partition.watermark >= watermark
    return replace(partition, returning=False) if caught_up else partition


def _combined(rule: Rule, before: Progress, partitions: Mapping[str, Partition], clock: Timestamp) -> Timestamp:
    if isinstance(rule, Watermark) and isinstance(rule.generator, ByClock):
        return clock - INSTANT
    unfinished = [partition for partition in partitions.values() if not partition.finished]
    if not unfinished:
        return END if partitions else BEGINNING
    if any(partition.is_active for partition in unfinished):
        return min((partition.watermark for partition in unfinished if partition.counts), default=BEGINNING)
    return _all_idle(rule, before, unfinished)


def _all_idle(rule: Rule, before: Progress, idle: Iterable[Partition]) -> Timestamp:
    """All data seen is complete, unless the last input to become idle was still catching up."""
    highest = max(partition.watermark for partition in idle)
    match rule:
        case Watermark():
            return highest
        case Inputs():
            return highest if any(partition.counts for partition in before.partitions.values()) else BEGINNING
    assert_never(rule)
