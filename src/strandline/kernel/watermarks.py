"""Watermarks in band: every task tells every key group what it saw of each partition, and all fold it alike.

The fold is a pure function of the control rows and the batch's clock, so a batch that is played again finds the same
watermark, and every key group the same one. Partitions of a source and inputs of a step are folded alike; where the
rules differ the rule that was asked for, a Watermark or Inputs, is matched.
"""

import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
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
    """What one task saw of one partition in one batch, or what its source says of it."""

    partition: str
    rows: int = 0
    highest: int | None = None
    finished: bool = False
    watermark: int | None = None
    """What the source itself says."""
    idle: bool | None = None
    """The source says that it has fallen idle (True), or returned (False)."""
    times: tuple[tuple[int, int], ...] = ()
    """Where a percentile must know how far behind each element came: their times, as `counted_times` tells them."""
    first: int = 0
    """The offset of the first row, by which several tasks of one partition are put in order."""


@dataclass(frozen=True, slots=True)
class Control:
    """What one task saw in one batch, and the batch's clock in milliseconds."""

    clock: int
    seen: tuple[Seen, ...] = ()
    drain: bool = False
    of: str = ""
    """The input that it tells of, where a step has several; none, of all."""


@dataclass(frozen=True, slots=True)
class Input:
    """One of the inputs of a step: a source by its rule, with the partitions it is known to have, or another step."""

    name: str
    rule: Watermark | None = None
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """How far a partition has come: its watermark, when it was last heard, and whether it counts."""

    watermark: int = NEVER
    heard: int = 0
    idle: bool = False
    finished: bool = False
    returning: bool = False
    highest: int = NEVER
    lags: tuple[tuple[int, tuple[tuple[int, int], ...]], ...] = ()
    """How far behind elements came: for each recent clock, lags with how many came so."""

    @property
    def is_active(self) -> bool:
        return not self.idle and not self.finished

    @property
    def counts(self) -> bool:
        return self.is_active and not self.returning


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a source has come."""

    watermark: int = NEVER
    clock: int = NEVER
    partitions: Mapping[str, PartitionProgress] = field(default_factory=dict)
    inputs: Mapping[str, "Progress"] = field(default_factory=dict)
    """How far each of several inputs has come; their names are then the partitions."""

    @property
    def idle(self) -> tuple[str, ...]:
        """The partitions that no longer hold the watermark back."""
        mine = [name for name, each in self.partitions.items() if each.idle and not each.finished]
        return tuple(sorted([*mine, *(name for each in self.inputs.values() for name in each.idle)]))

    @property
    def is_idle(self) -> bool:
        unfinished = [each for each in self.partitions.values() if not each.finished]
        return bool(unfinished) and all(each.idle for each in unfinished)


def put_aside_after(rule: Rule | None, clock: int) -> int | None:
    """The time after which events become dead letters. Whoever is not taken in does not move the watermark either."""
    future = rule.future if isinstance(rule, Watermark) else None
    return clock + future.ahead.ms if future is not None and future.dead_letter else None


def moving_time(rows: pl.DataFrame, rule: Rule | None, clock: int) -> pl.DataFrame:
    """The rows whose times tell how far time has come: not those that have none, nor those that are put aside."""
    last = put_aside_after(rule, clock)
    if last is not None:
        return rows.filter(pl.col(AT) <= last)
    return rows.filter(pl.col(AT).is_not_null()) if rows[AT].null_count() else rows


def counted_times(times: pl.Series) -> tuple[tuple[int, int], ...]:
    """The times of elements in their order, each with how many there are of it while the highest stays the same.

    Until a new highest comes, elements are behind the same one, whatever came before the batch: they need not be told
    one by one, and nothing is lost. There are no more of them than milliseconds of disorder for each of progress.
    """
    frame = times.alias(_TIME).to_frame().with_columns(pl.col(_TIME).cum_max().alias(_HIGHEST))
    counted = frame.group_by(_HIGHEST, _TIME).len().sort(_HIGHEST, _TIME, descending=[False, True])
    return tuple(counted.select(_TIME, "len").iter_rows())


def advance(before: Progress, controls: Iterable[Control], expected: Iterable[str], rule: Rule) -> Progress:
    """The progress after a batch: partitions are heard, fall idle or end; their least is the watermark."""
    controls = list(controls)
    clock = max([before.clock, *(control.clock for control in controls)])
    partitions = {name: PartitionProgress(heard=clock) for name in expected} | dict(before.partitions)
    for seen in _by_partition(controls):
        if seen.partition in partitions or _may_join(rule, seen):
            known = partitions.get(seen.partition, PartitionProgress(heard=clock))
            partitions[seen.partition] = _heard(rule, known, seen, before.watermark, clock)
    if any(control.drain for control in controls):
        return Progress(FOREVER, clock, partitions)
    settled = {name: _settled(rule, each, before.watermark, clock) for name, each in partitions.items()}
    reached = _combined(rule, before, settled, clock)
    return Progress(max(before.watermark, reached), clock, settled)


def advance_inputs(before: Progress, controls: Iterable[Control], inputs: Sequence[Input]) -> Progress:
    """The same for a step with several inputs, or after another step: each comes as far as it does, then they meet."""
    controls = list(controls)
    clock = max([before.clock, *(control.clock for control in controls)])
    known: dict[str, Progress] = {}
    seen: list[Seen] = []
    for each in inputs:
        mine = [control for control in controls if control.of in ("", each.name)]
        if each.rule is None:
            seen += _forwarded(each.name, mine)
        else:
            known[each.name] = reached = advance(
                before.inputs.get(each.name, Progress()), mine, each.partitions, each.rule
            )
            seen.append(_input_seen(each.name, reached.watermark, reached.is_idle))
    drain = any(control.drain for control in controls)
    names = tuple(each.name for each in inputs)
    met = advance(before, [Control(clock, tuple(seen), drain)], names, Inputs(names))
    return replace(met, inputs=known)


def _forwarded(name: str, controls: Iterable[Control]) -> list[Seen]:
    """What all key groups of a step forward, which is the least that any of them does."""
    told = [seen for control in controls for seen in control.seen if seen.partition == name]
    if not told:
        return []
    least = min(NEVER if seen.watermark is None else seen.watermark for seen in told)
    return [_input_seen(name, least, all(seen.idle for seen in told))]


def _input_seen(name: str, watermark: int, idle: bool) -> Seen:
    return Seen(name, watermark=watermark, idle=idle, finished=watermark == FOREVER)


def _by_partition(controls: Iterable[Control]) -> list[Seen]:
    """What all tasks saw of each partition, put together in the order of its rows."""
    told: dict[str, Seen] = {}
    for seen in sorted((seen for control in controls for seen in control.seen), key=lambda s: (s.partition, s.first)):
        known = told.get(seen.partition)
        told[seen.partition] = seen if known is None else _joined(known, seen)
    return [*told.values()]


def _joined(one: Seen, other: Seen) -> Seen:
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
    """Partitions are added to a source while it runs, inputs are not; rows that name none do not tell for one."""
    if isinstance(rule, Inputs):
        return False
    told = seen.watermark is not None or seen.idle is not None
    return told or seen.partition != "" or not isinstance(rule.generator, FromSource)


def _heard(rule: Rule, known: PartitionProgress, seen: Seen, watermark: int, clock: int) -> PartitionProgress:
    """Rows, a watermark or its return make a partition active; an idle input's watermarks are ignored."""
    if seen.idle:
        return replace(known, idle=True, returning=False, finished=known.finished or seen.finished)
    if seen.watermark is not None and isinstance(rule, Inputs) and known.idle and seen.idle is None:
        return known
    state = known
    if seen.rows or seen.watermark is not None or seen.idle is False:
        late = known.idle and rule.on_return is OnReturn.CATCH_UP and known.watermark < watermark
        state = replace(known, heard=clock, idle=False, returning=known.returning or late)
    if seen.watermark is not None:
        state = replace(state, watermark=max(state.watermark, seen.watermark))
    if (seen.rows or seen.highest is not None) and isinstance(rule, Watermark):
        state = _observed(rule, state, seen, clock)
    return replace(state, finished=state.finished or seen.finished)


def _observed(rule: Watermark, state: PartitionProgress, seen: Seen, clock: int) -> PartitionProgress:
    """A partition's watermark after a batch of its elements."""
    limit = FOREVER if rule.future is None else min(clock + rule.future.ahead.ms, FOREVER)
    highest = state.highest if seen.highest is None else max(state.highest, min(seen.highest, limit))
    match rule.generator:
        case Bounded(delay):
            reached = _less(highest, delay.ms + 1)
            return replace(state, highest=highest, watermark=max(state.watermark, reached))
        case Percentile():
            lags = _sampled(rule.generator, state, [(min(at, limit), many) for at, many in seen.times], clock)
            waits = _quantile(rule.generator, [lag for _, each in lags for lag in each])
            reached = _less(highest, waits + 1)
            return replace(state, highest=highest, watermark=max(state.watermark, reached), lags=lags)
        case FromSource() | ByClock():
            return state


def _less(at: int, ms: int) -> int:
    return at if at in (NEVER, FOREVER) else max(at - ms, NEVER)


def _sampled(
    ask: Percentile, state: PartitionProgress, times: Sequence[tuple[int, int]], clock: int
) -> tuple[tuple[int, tuple[tuple[int, int], ...]], ...]:
    """The lags that are recent enough, with those of this batch, rounded up to five binary digits and counted."""
    counts: dict[int, int] = {}
    highest = state.highest
    for at, many in times:
        highest = max(highest, at)
        shift = max((highest - at).bit_length() - 5, 0)
        lag = -(-(highest - at) >> shift) << shift
        counts[lag] = counts.get(lag, 0) + many
    recent = [(when, lags) for when, lags in state.lags if when + ask.horizon.ms >= clock]
    return (*recent, (clock, tuple(sorted(counts.items())))) if counts else tuple(recent)


def _quantile(ask: Percentile, lags: Sequence[tuple[int, int]]) -> int:
    """The smallest lag that at least the share p of the samples do not exceed, within the bounds that were set."""
    many = sum(count for _, count in lags)
    if many < ask.enough:
        return ask.first.ms
    ranked = sorted(lags)
    passed, total = [], 0
    for _, count in ranked:
        total += count
        passed.append(total / many)
    within = ranked[bisect.bisect_left(passed, ask.p)][0]
    return min(max(within, ask.least.ms), ask.most.ms)


def _settled(rule: Rule, state: PartitionProgress, watermark: int, clock: int) -> PartitionProgress:
    """Who is idle now, and who has caught up."""
    silence = rule.idle if isinstance(rule, Watermark) else None
    if silence is not None and clock > state.heard + silence.ms:
        return replace(state, idle=True, returning=False)
    return replace(state, returning=state.returning and state.watermark < watermark)


def _combined(rule: Rule, before: Progress, partitions: Mapping[str, PartitionProgress], clock: int) -> int:
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
    """A control as plain values, for a block."""
    seen = [asdict(each) for each in control.seen]
    return {"clock": control.clock, "seen": seen, "drain": control.drain, "of": control.of}


def control_from_facts(facts: Mapping[str, Any]) -> Control:
    seen = tuple(Seen(**{**told, "times": tuple((at, many) for at, many in told["times"])}) for told in facts["seen"])
    return Control(facts["clock"], seen, facts["drain"], facts["of"])


def progress_to_facts(progress: Progress) -> dict[str, Any]:
    """A progress as plain values, for a block."""
    partitions = {name: asdict(each) for name, each in progress.partitions.items()}
    inputs = {name: progress_to_facts(each) for name, each in progress.inputs.items()}
    return {"watermark": progress.watermark, "clock": progress.clock, "partitions": partitions, "inputs": inputs}


def progress_from_facts(facts: Mapping[str, Any]) -> Progress:
    partitions = {name: _partition(told) for name, told in facts["partitions"].items()}
    inputs = {name: progress_from_facts(told) for name, told in facts["inputs"].items()}
    return Progress(facts["watermark"], facts["clock"], partitions, inputs)


def _partition(told: Mapping[str, Any]) -> PartitionProgress:
    recent = tuple((when, tuple((lag, count) for lag, count in each)) for when, each in told["lags"])
    return PartitionProgress(**{**told, "lags": recent})
