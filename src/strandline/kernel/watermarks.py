"""Compute watermarks in band: every task sends every key group control rows of what it saw of its partitions.

Which partitions a source has is not sent by tasks: key groups take it from the facts of the batch, and store it.

The fold over control rows is a pure function of the rows and the batch's clock. A replayed batch therefore finds the
same watermark, and so does every key group. Partitions of a source and inputs of a step use the same fold; where their
rules differ, the fold matches on the rule (Watermark or Inputs).
"""

import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, Final

import polars as pl

from strandline.kernel.blocks.block import AT
from strandline.model.elements import BEGINNING, END
from strandline.model.watermarks import Bounded, ByClock, FromSource, Inputs, OnReturn, Percentile, Watermark

NEVER: Final = BEGINNING.ms
FOREVER: Final = END.ms
_TIME: Final = "time"
_HIGHEST: Final = "highest"

Rule = Watermark | Inputs


@dataclass(frozen=True, slots=True)
class Seen:
    """What one task observed of one partition in one batch, or what the source reported."""

    partition: str
    rows: int = 0
    highest: int | None = None
    finished: bool = False
    watermark: int | None = None
    """Watermark that the source itself reported."""
    idle: bool | None = None
    """True if the source reported the partition idle, False if it reported it active again."""
    times: tuple[tuple[int, int], ...] = ()
    """Event times as `counted_times` returns them, for percentile watermarks, which need the lag of each element."""
    first: int = 0
    """Offset of the first row, which orders the observations of several tasks of one partition."""


@dataclass(frozen=True, slots=True)
class Control:
    """Control row: what one task observed in one batch, and the batch's clock in milliseconds."""

    clock: int
    seen: tuple[Seen, ...] = ()
    drain: bool = False
    of: str = ""
    """Name of the input, where a step has several; empty for all inputs."""


@dataclass(frozen=True, slots=True)
class Input:
    """Input of a step: a source with its watermark rule and known partitions, or another step (no rule)."""

    name: str
    rule: Rule | None = None
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """Progress of a partition: its watermark, its last activity, and whether it holds the watermark back."""

    watermark: int = NEVER
    heard: int = 0
    idle: bool = False
    finished: bool = False
    returning: bool = False
    highest: int = NEVER
    lags: tuple[tuple[int, tuple[tuple[int, int], ...]], ...] = ()
    """Sampled lags: for each recent clock, (lag, count) pairs."""

    @property
    def is_active(self) -> bool:
        """Tell whether the partition is neither idle nor finished."""
        return not self.idle and not self.finished

    @property
    def counts(self) -> bool:
        """Tell whether the partition is part of the minimum."""
        return self.is_active and not self.returning


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a source, or of a step with several inputs."""

    watermark: int = NEVER
    clock: int = NEVER
    partitions: Mapping[str, PartitionProgress] = field(default_factory=dict)
    inputs: Mapping[str, "Progress"] = field(default_factory=dict)
    """Progress of each input, where there are several. `partitions` then has the names of the inputs."""

    @property
    def idle(self) -> tuple[str, ...]:
        """Return the idle partitions, which do not hold the watermark back."""
        own = [name for name, each in self.partitions.items() if each.idle and not each.finished]
        return tuple(sorted([*own, *(name for each in self.inputs.values() for name in each.idle)]))

    @property
    def is_idle(self) -> bool:
        unfinished = [each for each in self.partitions.values() if not each.finished]
        return bool(unfinished) and all(each.idle for each in unfinished)


def dead_letter_after(rule: Rule | None, clock: int) -> int | None:
    """Return the time after which events are dead-lettered, if any. Such events do not advance the watermark."""
    future = rule.future if isinstance(rule, Watermark) else None
    return clock + future.ahead.ms if future is not None and future.dead_letter else None


def rows_advancing_watermark(rows: pl.DataFrame, rule: Rule | None, clock: int) -> pl.DataFrame:
    """Select the rows that advance the watermark: those with an event time that are not dead-lettered."""
    last = dead_letter_after(rule, clock)
    if last is not None:
        return rows.filter(pl.col(AT) <= last)
    return rows.filter(pl.col(AT).is_not_null()) if rows[AT].null_count() else rows


def counted_times(times: pl.Series) -> tuple[tuple[int, int], ...]:
    """Count equal event times between two new maxima, in order of arrival; return (time, count) pairs.

    Until a new maximum arrives, all elements lag behind the same one, so counts keep every lag. The number of pairs is
    bounded by the disorder in milliseconds for each millisecond of progress.
    """
    frame = times.alias(_TIME).to_frame().with_columns(pl.col(_TIME).cum_max().alias(_HIGHEST))
    counted = frame.group_by(_HIGHEST, _TIME).len().sort(_HIGHEST, _TIME, descending=[False, True])
    return tuple(counted.select(_TIME, "len").iter_rows())


def advance(before: Progress, controls: Iterable[Control], expected: Iterable[str], rule: Rule) -> Progress:
    """Compute the progress after a batch: update all partitions and take the minimum of their watermarks."""
    controls = list(controls)
    clock = max([before.clock, *(control.clock for control in controls)])
    partitions = dict(before.partitions)
    for name in expected:
        if name not in partitions:
            partitions[name] = PartitionProgress(heard=clock)
    for seen in _by_partition(controls):
        if seen.partition in partitions or _may_join(rule, seen):
            known = partitions.get(seen.partition, PartitionProgress(heard=clock))
            partitions[seen.partition] = _with_observation(rule, known, seen, before.watermark, clock)
    if any(control.drain for control in controls):
        return Progress(FOREVER, clock, partitions)
    settled = {name: _with_idleness(rule, each, before.watermark, clock) for name, each in partitions.items()}
    reached = _combined(rule, before, settled, clock)
    return Progress(max(before.watermark, reached), clock, settled)


def advance_inputs(before: Progress, controls: Iterable[Control], inputs: Sequence[Input]) -> Progress:
    """Compute the progress of a step with several inputs or behind another step: each input, then their minimum."""
    controls = list(controls)
    clock = max([before.clock, *(control.clock for control in controls)])
    known: dict[str, Progress] = {}
    seen: list[Seen] = []
    for each in inputs:
        relevant = [control for control in controls if control.of in ("", each.name)]
        if each.rule is None:
            seen += _forwarded(each.name, relevant)
        else:
            known[each.name] = reached = advance(
                before.inputs.get(each.name, Progress()), relevant, each.partitions, each.rule
            )
            seen.append(_input_seen(each.name, reached.watermark, reached.is_idle))
    drain = any(control.drain for control in controls)
    names = tuple(each.name for each in inputs)
    combined = advance(before, [Control(clock, tuple(seen), drain)], names, Inputs(names))
    return replace(combined, inputs=known)


def _forwarded(name: str, controls: Iterable[Control]) -> list[Seen]:
    """Combine the watermarks forwarded by all key groups of the previous step: their minimum."""
    forwarded = [seen for control in controls for seen in control.seen if seen.partition == name]
    if not forwarded:
        return []
    least = min(NEVER if seen.watermark is None else seen.watermark for seen in forwarded)
    return [_input_seen(name, least, all(seen.idle for seen in forwarded))]


def _input_seen(name: str, watermark: int, idle: bool) -> Seen:
    return Seen(name, watermark=watermark, idle=idle, finished=watermark == FOREVER)


def _by_partition(controls: Iterable[Control]) -> list[Seen]:
    """Merge the observations of all tasks by partition, in offset order."""
    merged: dict[str, Seen] = {}
    for seen in sorted((seen for control in controls for seen in control.seen), key=lambda s: (s.partition, s.first)):
        known = merged.get(seen.partition)
        merged[seen.partition] = seen if known is None else _merge(known, seen)
    return [*merged.values()]


def _merge(one: Seen, other: Seen) -> Seen:
    return Seen(
        one.partition,
        one.rows + other.rows,
        max((at for at in (one.highest, other.highest) if at is not None), default=None),
        one.finished or other.finished,
        max((at for at in (one.watermark, other.watermark) if at is not None), default=None),
        one.idle if other.idle is None else other.idle,
        one.times + other.times,
        one.first,
    )


def _may_join(rule: Rule, seen: Seen) -> bool:
    """Tell whether an unknown partition may be added: sources gain partitions while they run, steps gain no inputs.

    Rows without a partition name add none if the source reports watermarks itself.
    """
    if isinstance(rule, Inputs):
        return False
    is_reported = seen.watermark is not None or seen.idle is not None
    return is_reported or seen.partition != "" or not isinstance(rule.generator, FromSource)


def _with_observation(
    rule: Rule, known: PartitionProgress, seen: Seen, watermark: int, clock: int
) -> PartitionProgress:
    """Apply an observation: rows, a watermark or a report of activity make a partition active.

    Watermarks of an idle input are ignored.
    """
    if seen.idle:
        return replace(known, idle=True, returning=False, finished=known.finished or seen.finished)
    if seen.watermark is not None and isinstance(rule, Inputs) and known.idle and seen.idle is None:
        return known
    state = known
    if seen.rows or seen.watermark is not None or seen.idle is False:
        is_behind = known.idle and rule.on_return is OnReturn.CATCH_UP and known.watermark < watermark
        state = replace(known, heard=clock, idle=False, returning=known.returning or is_behind)
    if seen.watermark is not None:
        state = replace(state, watermark=max(state.watermark, seen.watermark))
    if (seen.rows or seen.highest is not None) and isinstance(rule, Watermark):
        state = _with_elements(rule, state, seen, clock)
    return replace(state, finished=state.finished or seen.finished)


def _with_elements(rule: Watermark, state: PartitionProgress, seen: Seen, clock: int) -> PartitionProgress:
    """Compute a partition's watermark after a batch of its elements."""
    limit = FOREVER if rule.future is None else min(clock + rule.future.ahead.ms, FOREVER)
    highest = state.highest if seen.highest is None else max(state.highest, min(seen.highest, limit))
    match rule.generator:
        case Bounded(delay):
            reached = _minus(highest, delay.ms + 1)
            return replace(state, highest=highest, watermark=max(state.watermark, reached))
        case Percentile():
            lags = _sampled(rule.generator, state, [(min(at, limit), many) for at, many in seen.times], clock)
            delay_ms = _quantile(rule.generator, [lag for _, each in lags for lag in each])
            reached = _minus(highest, delay_ms + 1)
            return replace(state, highest=highest, watermark=max(state.watermark, reached), lags=lags)
        case FromSource() | ByClock():
            return state


def _minus(at: int, ms: int) -> int:
    """Subtract from a time, but not from either end of time."""
    return at if at in (NEVER, FOREVER) else max(at - ms, NEVER)


def _sampled(
    generator: Percentile, state: PartitionProgress, times: Sequence[tuple[int, int]], clock: int
) -> tuple[tuple[int, tuple[tuple[int, int], ...]], ...]:
    """Drop lags beyond the horizon and add those of this batch, rounded up to five significant bits and counted."""
    counts: dict[int, int] = {}
    highest = state.highest
    for at, many in times:
        highest = max(highest, at)
        shift = max((highest - at).bit_length() - 5, 0)
        lag = -(-(highest - at) >> shift) << shift
        counts[lag] = counts.get(lag, 0) + many
    recent = [(when, lags) for when, lags in state.lags if when + generator.horizon.ms >= clock]
    return (*recent, (clock, tuple(sorted(counts.items())))) if counts else tuple(recent)


def _quantile(generator: Percentile, lags: Sequence[tuple[int, int]]) -> int:
    """Return the smallest lag that at least the share p of samples do not exceed, clamped to the configured bounds."""
    many = sum(count for _, count in lags)
    if many < generator.enough:
        return generator.first.ms
    ranked = sorted(lags)
    shares, total = [], 0
    for _, count in ranked:
        total += count
        shares.append(total / many)
    lag = ranked[bisect.bisect_left(shares, generator.p)][0]
    return min(max(lag, generator.least.ms), generator.most.ms)


def _with_idleness(rule: Rule, state: PartitionProgress, watermark: int, clock: int) -> PartitionProgress:
    """Mark a silent partition idle, and end the return of one that has caught up."""
    silence = rule.idle if isinstance(rule, Watermark) else None
    if silence is not None and clock > state.heard + silence.ms:
        return replace(state, idle=True, returning=False)
    if state.returning and state.watermark >= watermark:
        return replace(state, returning=False)
    return state


def _combined(rule: Rule, before: Progress, partitions: Mapping[str, PartitionProgress], clock: int) -> int:
    """Combine the watermarks of partitions: the minimum of those that count, or the maximum if all are idle."""
    if isinstance(rule, Watermark) and isinstance(rule.generator, ByClock):
        return clock - 1
    unfinished = [each for each in partitions.values() if not each.finished]
    if not unfinished:
        return FOREVER if partitions else NEVER
    if any(each.is_active for each in unfinished):
        return min((each.watermark for each in unfinished if each.counts), default=NEVER)
    if isinstance(rule, Inputs) and not any(each.counts for each in before.partitions.values()):
        return NEVER
    return max(each.watermark for each in unfinished)


def control_to_facts(control: Control) -> dict[str, Any]:
    """Convert a control row to plain values, for the facts of a block."""
    seen = _to_columns(control.seen, _SEEN, _SEEN_DEFAULTS) | {"partition": [each.partition for each in control.seen]}
    return {"clock": control.clock, "seen": seen, "drain": control.drain, "of": control.of}


def control_from_facts(facts: Mapping[str, Any]) -> Control:
    """Restore a control row from the facts of a block."""
    columns = dict(facts["seen"])
    if "times" in columns:
        columns["times"] = [tuple((at, many) for at, many in each) for each in columns["times"]]
    seen = tuple(Seen(*values) for values in _from_columns(columns, _SEEN, _SEEN_DEFAULTS))
    return Control(facts["clock"], seen, facts["drain"], facts["of"])


def progress_to_facts(progress: Progress) -> dict[str, Any]:
    """Convert a progress to plain values, for the facts of a block. Partitions are stored column by column."""
    columns = _to_columns(list(progress.partitions.values()), _PARTITION, _PARTITION_DEFAULTS)
    columns["names"] = list(progress.partitions)
    inputs = {name: progress_to_facts(each) for name, each in progress.inputs.items()}
    return {"watermark": progress.watermark, "clock": progress.clock, "columns": columns, "inputs": inputs}


def progress_from_facts(facts: Mapping[str, Any]) -> Progress:
    """Restore a progress from the facts of a block. Before form 5 each partition was stored with the names of its
    fields."""
    inputs = {name: progress_from_facts(each) for name, each in facts["inputs"].items()}
    if "columns" in facts:
        columns = dict(facts["columns"])
        names = columns.pop("names")
        if "lags" in columns:
            columns["lags"] = [_lags(each) for each in columns["lags"]]
        rows = _from_columns({"names": names, **columns}, ("names", *_PARTITION), {"names": "", **_PARTITION_DEFAULTS})
        partitions = {name: PartitionProgress(*values) for name, *values in rows}
    else:
        stored = facts["partitions"].items()
        partitions = {name: PartitionProgress(**{**each, "lags": _lags(each["lags"])}) for name, each in stored}
    return Progress(facts["watermark"], facts["clock"], partitions, inputs)


def _lags(stored: Iterable[Any]) -> tuple[tuple[int, tuple[tuple[int, int], ...]], ...]:
    return tuple((when, tuple((lag, count) for lag, count in each)) for when, each in stored)


def _to_columns(rows: Sequence[object], names: Sequence[str], defaults: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the fields of many rows as lists, without the fields that have their default in all rows."""
    columns = {name: [getattr(row, name) for row in rows] for name in names}
    return {name: column for name, column in columns.items() if any(value != defaults[name] for value in column)}


def _from_columns(
    columns: Mapping[str, Sequence[Any]], names: Sequence[str], defaults: Mapping[str, Any]
) -> Iterable[tuple[Any, ...]]:
    """Return the rows of columns; missing columns have their default."""
    height = max((len(column) for column in columns.values()), default=0)
    return zip(*(columns.get(name) or [defaults[name]] * height for name in names), strict=True)


def _defaults(kind: type[Seen | PartitionProgress]) -> dict[str, Any]:
    return {each.name: "" if each.default is MISSING else each.default for each in fields(kind)}


_SEEN_DEFAULTS: Final = _defaults(Seen)
_SEEN: Final = tuple(_SEEN_DEFAULTS)
_PARTITION_DEFAULTS: Final = _defaults(PartitionProgress)
_PARTITION: Final = tuple(_PARTITION_DEFAULTS)
