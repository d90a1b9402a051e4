"""Prepare the rows of a task: decode them, run stateless steps, and pack one block per key group.

Every key group gets a block, even without rows, with what the task saw of each source partition. Key groups compute the
watermark from it.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import polars as pl
import pyarrow as pa

from strandline.errors import StateError
from strandline.execution.batch import Batch
from strandline.execution.block_addresses import address, to_deliver
from strandline.execution.lookups.lookups import Lookups
from strandline.execution.row_decoding import (
    CLOCK,
    MARK,
    Arrived,
    Batches,
    as_one,
    of_columns,
    of_decoded,
    of_records,
)
from strandline.execution.stateless_steps import aggregating, run_operations
from strandline.execution.task_metrics import FACT, Measured, measure, to_facts, with_metrics
from strandline.execution.task_writes import Writers, write_rows
from strandline.kernel.blocks.block import AT, INPUT, OFFSET, PARTITION, Block, pack
from strandline.kernel.blocks.small_frames import without
from strandline.kernel.dead_letters import letters_of, no_letters
from strandline.kernel.operator import Prepared
from strandline.kernel.operators import operator_of
from strandline.kernel.output import Counts, counts_to_facts
from strandline.kernel.panics import POLARS_FAILURE, message_of
from strandline.kernel.stateless_steps import ORIGIN, STEP, Passed, run_by_halves
from strandline.kernel.watermarks import Control, Rule, Seen, control_to_facts, counted_times, rows_advancing_watermark
from strandline.model.panes import DeadReason
from strandline.model.watermarks import Percentile, Watermark
from strandline.plan.stages import Flow, KeyedStep, Scan
from strandline.ports.codecs import RAW, REASON, Decoder
from strandline.ports.dead_letter_masking import failures, outgoing, with_raw
from strandline.ports.raw_records import DRAINED, ENDED, RECORD, SEAM

CARRIED: Final = pa.schema([("kg", pa.int64()), ("block", pa.binary())])

_DETAILS: Final = {
    DeadReason.FUTURE.value: "its time is further ahead of the clock than allowed",
    DeadReason.BAD_GAP.value: "its gap is missing, unreadable or not above zero",
    DeadReason.BAD_WINDOW.value: "its bounds are missing, unreadable, or the end is not after the start",
}

_WINDOW_REASONS: Final = dict.fromkeys([DeadReason.BAD_GAP.value, DeadReason.BAD_WINDOW.value], "window")


@dataclass(frozen=True, slots=True)
class Seam:
    """The switch of a backfill from history to the topic: by flow, what is sent of partitions on each side."""

    over: Mapping[str, tuple[Seen, ...]]
    live: Mapping[str, tuple[Seen, ...]]


Steps = Mapping[int, KeyedStep]
Blocks = list[tuple[int, Block]]


@dataclass(frozen=True, slots=True)
class SourceName:
    """The part of a source that travels to tasks: its name."""

    name: str


def leaving_task(blocks: Blocks, writers: Writers, batch: Batch, begun: float, read: float) -> Blocks:
    """Write rows to sinks that tasks can write, and return the other blocks; add timings to the first if measured.

    `begun` and `read` are when the task started and when its input had been read.
    """
    prepared = time.perf_counter()
    blocks = write_rows(blocks, writers, batch)
    if not batch.measured or not blocks:
        return blocks
    spent = {"read": read - begun, "prepare": prepared - read, "write": time.perf_counter() - prepared}
    return [(blocks[0][0], with_metrics(blocks[0][1], Measured(spent))), *blocks[1:]]


def tick(
    frame: pl.DataFrame, steps: tuple[KeyedStep, ...], batch: Batch, task: int, seam: Seam | None = None
) -> Blocks:
    """Return blocks with controls and without rows."""
    clock = _clock(frame, batch)
    drain = bool((frame["mark"] == DRAINED).any())
    control = control_to_facts(Control(clock, drain=drain))
    facts = {"control": control, "from": "tick", "counts": counts_to_facts(Counts())}
    blocks = [(address(step, group), Block(facts=facts)) for step in steps for group in range(step.groups)]
    if seam is not None and bool((frame["mark"] == SEAM).any()):
        blocks += _seam_blocks(steps, seam, facts, clock)
    return [*blocks, (to_deliver(task), Block(facts={"clock": clock, "drain": drain}))]


def _seam_blocks(steps: tuple[KeyedStep, ...], seam: Seam, facts: Mapping[str, Any], clock: int) -> Blocks:
    """Return the controls at the seam: history has ended, and the topic has reached the cut. Sent once."""
    blocks: Blocks = []
    for step in steps:
        for each in step.inputs:
            if each.name in seam.over or each.name in seam.live:
                seen = seam.over.get(each.name) or seam.live[each.name]
                seam_facts = {**facts, "control": control_to_facts(Control(clock, seen, of=each.name))}
                blocks += [(address(step, group), Block(facts=seam_facts)) for group in range(step.groups)]
    return blocks


def prepare_scan(  # noqa: PLR0913 - what a task has
    frame: pl.DataFrame,
    scan: Scan,
    steps: Steps,
    decoder: Decoder | None,
    batch: Batch,
    task: int,
    *,
    alone: bool = False,
    part: int = 0,
) -> Blocks:
    """Return the blocks of one task: for every key group of every step that its rows may reach, and for delivery.

    A source that is `alone` has one partition, whatever partitions its records name. `part` numbers parts of a task.
    """
    clock = _clock(frame, batch)
    arrived = _arrived(without(frame, (CLOCK,)), decoder, clock, task, alone=alone)
    leaving = _Leaving([letters_of(arrived.dead, step="decode")])
    blocks: Blocks = []
    # Undecodable records never reach a step. They are counted at the first route.
    undecoded = Counts(read=arrived.dead.height, dead=arrived.dead.height)
    # A record on several routes is read once.
    read = Counts(read=arrived.rows.height)
    sender = f"{scan.number}.{task:06}.{part:06}"
    for flow in scan.flows:
        lookups = Lookups(batch, sender, f"{scan.number} {flow.name}", clock)
        timed = _with_time(run_operations(arrived.rows, flow.operations, lookups), flow)
        leaving.fail(timed.failed, flow)
        control = control_to_facts(_control(arrived, timed.rows, clock, flow))
        for number, route in enumerate(flow.routes):
            passed = run_operations(timed.rows, route.operations, replace(lookups, route=f"{lookups.route} {number}"))
            leaving.fail(passed.failed, flow)
            offered = undecoded + read + _counts(timed) + _counts(passed)
            undecoded, read = Counts(), Counts(again=arrived.rows.height)
            if route.output is not None:
                leaving.leave(route.output, *_leaving(passed.rows, flow), offered)
                continue
            step = steps[route.step or 0]
            origin = RowSource(sender, route.input, flow.watermark, flow.event_time)
            fed, refused = feed(passed.rows, step, origin, control, batch, offered)
            leaving.letters.append(refused)
            blocks += fed
        lookups.close()
    ended = sorted(arrived.marks.filter(pl.col(MARK) == ENDED)[PARTITION])
    facts = {"clock": clock, "drain": False, "scan": scan.number, "ended": ended}
    return [*blocks, *leaving.blocks(scan, decoder, task, facts)]


@dataclass
class _Leaving:
    """Collect what a task sends past the key groups: dead letters, and rows that go straight to an output."""

    letters: list[pl.DataFrame]
    exits: dict[str, pl.DataFrame] = field(default_factory=dict)
    counts: dict[str, Mapping[str, int]] = field(default_factory=dict)

    def fail(self, failed: pl.DataFrame | None, flow: Flow) -> None:
        if failed is None:
            return
        if flow.event_time is not None and AT not in failed.columns and flow.event_time in failed.columns:
            # The row failed before its time was read; the dead letter still gets it.
            is_time = failed.schema[flow.event_time] == pl.Datetime
            failed = failed.with_columns(_milliseconds(failed, flow.event_time).alias(AT)) if is_time else failed
        self.letters.append(failures(failed))

    def leave(self, output: int, rows: pl.DataFrame, refused: pl.DataFrame, offered: Counts) -> None:
        name = f"out:{output}"
        self.letters.append(refused)
        self.exits[name] = rows
        self.counts[name] = counts_to_facts(offered + Counts(contributed=rows.height, dead=refused.height))

    def blocks(self, scan: Scan, decoder: Decoder | None, task: int, facts: Mapping[str, Any]) -> Blocks:
        frames = dict(self.exits)
        letters = [each for each in self.letters if each.height]
        if letters:
            dead = outgoing(pl.concat(letters, how="vertical"), scan.source.name, decoder, scan.mask)
            frames[f"dead:{scan.dead_to}"] = dead
        filled = {name: frame for name, frame in frames.items() if frame.height}
        if not filled and not self.counts:
            return []
        return [(to_deliver(task), Block(filled, {**facts, "counts": self.counts}))]


@dataclass(frozen=True, slots=True)
class RowSource:
    """The origin of rows for a keyed step: the sender, the number of the path, the watermark and the time column."""

    sender: str
    path: int = 0
    rule: Rule | None = None
    event_time: str | None = None
    is_probed: bool = False
    """User aggregates have been tried on these rows already."""


def feed(
    rows: pl.DataFrame, step: KeyedStep, origin: RowSource, control: Mapping[str, Any], batch: Batch, known: Counts
) -> tuple[Blocks, pl.DataFrame]:
    """Return a block for each key group of a step, all with the control, and dead letters of rows it cannot take.

    If Polars fails on some rows, these become dead letters, found by halving.
    """
    try:
        return _feed(rows, step, origin, control, batch, known)
    except POLARS_FAILURE as problem:
        passed, failed = run_by_halves(rows, lambda each: _fed(each, step, origin, control, batch))
        if failed is None:
            raise StateError(
                f"{step.name} cannot prepare the rows of {origin.sender}",
                detail=message_of(problem),
                hint="each row alone is accepted; look at the types of the columns",
            ) from None
        letters = failures(failed, aggregating(step))
        more = known + Counts(dead=letters.height)
        blocks, dead = _feed(passed if passed.height else rows.clear(), step, origin, control, batch, more)
        return blocks, pl.concat([dead, letters], how="vertical")


def _fed(
    rows: pl.DataFrame, step: KeyedStep, origin: RowSource, control: Mapping[str, Any], batch: Batch
) -> pl.DataFrame:
    """Return the rows if the step can prepare them."""
    _feed(rows, step, origin, control, batch, Counts())
    return rows


def _feed(
    rows: pl.DataFrame, step: KeyedStep, origin: RowSource, control: Mapping[str, Any], batch: Batch, known: Counts
) -> tuple[Blocks, pl.DataFrame]:
    operator = operator_of(step.operator, step.keys, step.operator_inputs)
    if len(step.paths) > 1:
        rows = rows.with_columns(pl.lit(origin.path, pl.Int32).alias(INPUT))
    taken, refused = operator.admit(rows, origin.rule, int(control["clock"]))
    dead = _refused(refused, origin.event_time) if refused.height else no_letters()
    taken, failed = (taken, None) if origin.is_probed else operator.probe(taken)
    if failed is not None:
        dead = pl.concat([dead, failures(failed, aggregating(step))], how="vertical")
    elements = without(taken, (RAW, ORIGIN))
    # Rows of which none is left may have types that the aggregates do not take.
    horizon = batch.horizons.get(step.number)
    prepared = operator.prepare(elements, step.groups, horizon) if elements.height else Prepared({}, 0)
    counts = known + Counts(dead=dead.height, filtered=prepared.filtered)
    seen = (
        measure(taken, prepared.blocks, step.name, step.keys, batch.heads.get(step.number)) if batch.measured else None
    )
    blocks: Blocks = []
    for group in range(step.groups):
        found = prepared.blocks.get(group, Block())
        facts: dict[str, Any] = {
            "control": control,
            "from": origin.sender,
            "counts": counts_to_facts(counts if group == 0 else Counts()),
        }
        if len(step.paths) > 1:
            facts["input"] = origin.path
        if seen is not None:
            facts[FACT] = to_facts(seen) if group == 0 else {}
        blocks.append((address(step, group), Block(found.frames, {**found.facts, **facts})))
    return blocks, dead


def _refused(rows: pl.DataFrame, event_time: str | None) -> pl.DataFrame:
    """Return dead letters of rows that a step cannot take."""
    detail = pl.col(REASON).replace_strict(_DETAILS, default=f"{event_time} is missing or unreadable")
    failed_step = pl.col(REASON).replace_strict(_WINDOW_REASONS, default="event_time").alias(STEP)
    return letters_of(with_raw(rows).with_columns(failed_step), detail)


def carried(blocks: Blocks) -> Batches:
    """Pack addressed blocks as an Arrow batch."""
    addresses = pa.array([to for to, _ in blocks], pa.int64())
    packed = pa.array([pack(block) for _, block in blocks], pa.binary())
    yield pa.RecordBatch.from_arrays([addresses, packed], schema=CARRIED)


def _arrived(frame: pl.DataFrame, decoder: Decoder | None, clock: int, task: int, *, alone: bool) -> Arrived:
    if decoder is None and MARK not in frame.columns:
        return of_columns(frame, clock, task, alone=alone)
    arrived = of_records(frame, decoder) if decoder is not None and MARK not in frame.columns else of_decoded(frame)
    return as_one(arrived) if alone else arrived


def _clock(frame: pl.DataFrame, batch: Batch) -> int:
    if batch.clock is not None:
        return batch.clock
    clock: Any = frame[CLOCK].dt.timestamp("ms").max()
    return int(clock)


def _with_time(passed: Passed, flow: Flow) -> Passed:
    """Add the event time in milliseconds."""
    name = flow.event_time

    def timed(rows: pl.DataFrame) -> Passed:
        at = pl.lit(None, pl.Int64) if name is None else _milliseconds(rows, name)
        return Passed(rows.with_columns(at.alias(AT)))

    return passed.then(timed).then(lambda rows: _within(rows, flow))


def _within(rows: pl.DataFrame, flow: Flow) -> Passed:
    """Keep rows in the span of the flow. Rows without a time pass; the next step makes them dead letters."""
    if flow.start is None and flow.end is None:
        return Passed(rows)
    after = pl.lit(True) if flow.start is None else pl.col(AT) >= flow.start
    before = pl.lit(True) if flow.end is None else pl.col(AT) < flow.end
    kept = rows.filter(pl.col(AT).is_null() | (after & before))
    return Passed(kept, filtered=rows.height - kept.height)


def _milliseconds(rows: pl.DataFrame, name: str) -> pl.Expr:
    """Convert to milliseconds, rounding down before the epoch too. Columns of milliseconds stay as they are."""
    kind = rows.schema[name]
    if isinstance(kind, pl.Datetime) and kind.time_unit == "ms":
        return pl.col(name).to_physical()
    return pl.col(name).dt.timestamp("us") // 1000


def _counts(passed: Passed) -> Counts:
    dead = 0 if passed.failed is None else passed.failed.height
    return Counts(again=passed.made, dead=dead, filtered=passed.filtered, unmatched=passed.unmatched)


def _leaving(rows: pl.DataFrame, flow: Flow) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Split elements for an output from dead letters: elements without the time that the flow has."""
    shown = rows.drop(RAW, ORIGIN, strict=False)
    if flow.event_time is None:
        return shown, no_letters()
    missing = rows.filter(pl.col(AT).is_null())
    if missing.is_empty():
        return shown, no_letters()
    reason = pl.lit(DeadReason.NO_EVENT_TIME.value).alias(REASON)
    dead = letters_of(with_raw(missing).with_columns(reason), pl.lit(f"{flow.event_time} is missing"), "event_time")
    return shown.filter(pl.col(AT).is_not_null()), dead


def _control(arrived: Arrived, rows: pl.DataFrame, clock: int, flow: Flow) -> Control:
    """Return what this task saw of its partitions, and the clock of the batch."""
    names = arrived.marks[PARTITION].unique().to_list()
    is_single = names == [""]
    timed = rows_advancing_watermark(rows, flow.watermark, clock)
    if len(names) == 1:
        highest: dict[str, Any] = {names[0]: timed[AT].max()}
    else:
        highest = dict(timed.group_by(PARTITION).agg(pl.col(AT).max()).iter_rows())
    times = _times(timed, is_single) if _needs_times(flow.watermark) else {}
    seen = []
    alone = [((names[0],), arrived.marks)] if len(names) == 1 else None
    for (name,), marks in alone or arrived.marks.group_by(PARTITION, maintain_order=True):
        records = marks.filter(pl.col(MARK) == RECORD)
        ended = bool((marks[MARK] == ENDED).any())
        first: Any = marks[OFFSET].min()
        count = int(records["rows"].sum())
        seen.append(Seen(str(name), count, highest.get(str(name)), ended, times=times.get(str(name), ()), first=first))
    return Control(clock, tuple(seen), of=flow.name)


def _needs_times(rule: Rule | None) -> bool:
    """Tell whether the watermark needs the times of all elements: a percentile of their delay does."""
    return isinstance(rule, Watermark) and isinstance(rule.generator, Percentile)


def _times(timed: pl.DataFrame, is_single: bool) -> dict[str, tuple[tuple[int, int], ...]]:
    ordered = timed.sort(PARTITION, OFFSET)
    if is_single:
        return {"": counted_times(ordered[AT])}
    return {str(name): counted_times(each[AT]) for (name,), each in ordered.group_by(PARTITION, maintain_order=True)}
