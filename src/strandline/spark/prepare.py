"""mapInArrow: in every partition, rows become blocks, one for each key group, with what was seen of the source."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import polars as pl
import pyarrow as pa

from strandline.kernel.blocks import AT, OFFSET, OWN, PARTITION, Block, pack
from strandline.kernel.output import Counts, counts_to_facts
from strandline.kernel.prepare import admit, prepare
from strandline.kernel.probes import probe
from strandline.kernel.rows import FAILED, PROBLEM, Passed
from strandline.kernel.watermarks import Control, Rule, Seen, control_to_facts
from strandline.model.panes import DeadReason
from strandline.model.watermarks import Percentile, Watermark
from strandline.plan.stages import Flow, KeyedStep, Scan
from strandline.spark.addresses import address, to_deliver
from strandline.spark.arrival import CLOCK, MARK, Arrived, Batches, no_letters, of_columns, of_decoded, of_records
from strandline.spark.batch import Batch, task_number, told
from strandline.spark.operations import run_operations
from strandline.spark.ports import DETAIL, DRAINED, ENDED, RAW, REASON, RECORD, Decoder

_SCHEMA: Final = pa.schema([("kg", pa.int64()), ("block", pa.binary())])

_DETAILS: Final = {
    DeadReason.FUTURE.value: "its time is further ahead of the clock than allowed",
    DeadReason.BAD_GAP.value: "its gap is missing, unreadable or not above zero",
    DeadReason.BAD_WINDOW.value: "its bounds are missing, unreadable or not a span of time",
}

Steps = Mapping[int, KeyedStep]
Blocks = list[tuple[int, Block]]


def prepare_task(scan: Scan, steps: Steps, decoder: Decoder | None) -> Callable[[Batches], Batches]:
    """The function that Spark runs over one partition of a source; a source itself need not travel."""
    scan = replace(scan, source=None)  # type: ignore[arg-type]

    def run(batches: Batches) -> Batches:
        tables = [batch for batch in batches if batch.num_rows]
        if tables:
            frame = pl.DataFrame(pa.Table.from_batches(tables))
            yield from carried(prepare_scan(frame, scan, steps, decoder, told(), task_number()))

    return run


def tick_task(steps: tuple[KeyedStep, ...]) -> Callable[[Batches], Batches]:
    """The function that Spark runs over the heartbeat: every key group hears of the clock, and of the end."""

    def run(batches: Batches) -> Batches:
        tables = [batch for batch in batches if batch.num_rows]
        if tables:
            yield from carried(tick(pl.DataFrame(pa.Table.from_batches(tables)), steps, told(), task_number()))

    return run


def tick(frame: pl.DataFrame, steps: tuple[KeyedStep, ...], batch: Batch, task: int) -> Blocks:
    """Controls without rows."""
    clock = _clock(frame, batch)
    drain = bool((frame["mark"] == DRAINED).any())
    control = control_to_facts(Control(clock, drain=drain))
    facts = {"control": control, "from": "tick", "counts": counts_to_facts(Counts())}
    blocks = [(address(step, group), Block(facts=facts)) for step in steps for group in range(step.groups)]
    return [*blocks, (to_deliver(task), Block(facts={"clock": clock, "drain": drain}))]


def prepare_scan(
    frame: pl.DataFrame, scan: Scan, steps: Steps, decoder: Decoder | None, batch: Batch, task: int
) -> Blocks:
    """The blocks of one task: for every key group of every step that its rows may go to, and for delivery."""
    clock = _clock(frame, batch)
    arrived = _arrived(frame.drop(CLOCK, strict=False), decoder, clock, task)
    leaving = _Leaving([arrived.dead])
    blocks: Blocks = []
    # Records that are none are offered to nobody; they are counted where the first rows go.
    unread = Counts(read=arrived.dead.height, dead=arrived.dead.height)
    for flow in scan.flows:
        timed = _with_time(run_operations(arrived.rows, flow.operations), flow)
        leaving.fail(timed.failed)
        known = batch.partitions.get(scan.number, ())
        control = control_to_facts(_control(arrived, timed.rows, clock, flow, known))
        for route in flow.routes:
            passed = run_operations(timed.rows, route.operations)
            leaving.fail(passed.failed)
            offered = unread + _counts(arrived.rows.height, timed) + _counts(0, passed)
            unread = Counts()
            if route.output is not None:
                leaving.leave(route.output, *_leaving(passed.rows, flow), offered)
                continue
            step, sender = steps[route.step or 0], f"{scan.number}.{task:06}"
            made, refused = feed(passed.rows, step, flow.watermark, control, batch, offered, sender, flow.event_time)
            leaving.letters.append(refused)
            blocks += made
    ended = sorted(arrived.marks.filter(pl.col(MARK) == ENDED)[PARTITION])
    facts = {"clock": clock, "drain": False, "scan": scan.number, "ended": ended}
    return [*blocks, *leaving.blocks(scan, task, facts)]


@dataclass
class _Leaving:
    """What a task sends past all key groups: dead letters, and rows that go straight to an output."""

    letters: list[pl.DataFrame]
    exits: dict[str, pl.DataFrame] = field(default_factory=dict)
    counts: dict[str, Mapping[str, int]] = field(default_factory=dict)

    def fail(self, failed: pl.DataFrame | None) -> None:
        if failed is not None:
            self.letters.append(failures(failed))

    def leave(self, output: int, rows: pl.DataFrame, refused: pl.DataFrame, offered: Counts) -> None:
        name = f"out:{output}"
        self.letters.append(refused)
        self.exits[name] = rows
        self.counts[name] = counts_to_facts(offered + Counts(contributed=rows.height, dead=refused.height))

    def blocks(self, scan: Scan, task: int, facts: Mapping[str, Any]) -> Blocks:
        dead = pl.concat(self.letters, how="vertical_relaxed")
        frames = {**self.exits, f"dead:{scan.dead_to}": dead}
        full = {name: frame for name, frame in frames.items() if frame.height}
        if not full and not self.counts:
            return []
        return [(to_deliver(task), Block(full, {**facts, "counts": self.counts}))]


def feed(  # noqa: PLR0913, PLR0917 - what a step is fed with
    rows: pl.DataFrame,
    step: KeyedStep,
    rule: Rule | None,
    control: Mapping[str, Any],
    batch: Batch,
    known: Counts,
    sender: str,
    event_time: str | None = None,
) -> tuple[Blocks, pl.DataFrame]:
    """A block for each key group of a step, the control in all of them; and the rows that it cannot take."""
    taken, refused = admit(rows, step.step, rule, int(control["clock"]))
    why = pl.col(REASON).replace_strict(_DETAILS, default=f"{event_time} is missing or unreadable").alias(DETAIL)
    dead = with_raw(refused).select(PARTITION, OFFSET, RAW, REASON, why) if refused.height else no_letters()
    taken, failed = probe(taken, step.keys, step.step)
    if failed is not None:
        dead = pl.concat([dead, failures(failed)], how="vertical_relaxed")
    prepared = prepare(
        taken.drop(RAW, strict=False), step.keys, step.step, step.groups, batch.horizons.get(step.number)
    )
    counts = known + Counts(dead=dead.height, filtered=prepared.filtered)
    blocks: Blocks = []
    for group in range(step.groups):
        found = prepared.blocks.get(group, Block())
        mine = {"control": control, "from": sender, "counts": counts_to_facts(counts if group == 0 else Counts())}
        blocks.append((address(step, group), Block(found.frames, {**found.facts, **mine})))
    return blocks, dead


def carried(blocks: Blocks) -> Batches:
    """Blocks as Spark carries them."""
    addresses = pa.array([to for to, _ in blocks], pa.int64())
    packed = pa.array([pack(block) for _, block in blocks], pa.binary())
    yield pa.RecordBatch.from_arrays([addresses, packed], schema=_SCHEMA)


def _arrived(frame: pl.DataFrame, decoder: Decoder | None, clock: int, task: int) -> Arrived:
    if MARK in frame.columns:
        return of_decoded(frame)
    if decoder is not None:
        return of_records(frame, decoder)
    return of_columns(frame, clock, task)


def _clock(frame: pl.DataFrame, batch: Batch) -> int:
    if batch.clock is not None:
        return batch.clock
    clock: Any = frame[CLOCK].dt.timestamp("ms").max()
    return int(clock)


def _with_time(passed: Passed, flow: Flow) -> Passed:
    """Rows with their event time in milliseconds. Division floors, so that times before the epoch round alike."""
    name = flow.event_time
    at = pl.lit(None, pl.Int64) if name is None else pl.col(name).dt.timestamp("us") // 1000
    return passed.then(lambda rows: Passed(rows.with_columns(at.alias(AT))))


def _counts(read: int, passed: Passed) -> Counts:
    dead = 0 if passed.failed is None else passed.failed.height
    return Counts(read=read + passed.made, dead=dead, filtered=passed.filtered)


def _leaving(rows: pl.DataFrame, flow: Flow) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Elements that go straight to an output; those that should have a time and have none do not."""
    if flow.event_time is None:
        return rows.drop(RAW, strict=False), no_letters()
    missing = rows.filter(pl.col(AT).is_null())
    why = [pl.lit(DeadReason.NO_EVENT_TIME.value).alias(REASON), pl.lit(f"{flow.event_time} is missing").alias(DETAIL)]
    dead = with_raw(missing).select(PARTITION, OFFSET, RAW, *why) if missing.height else no_letters()
    return rows.filter(pl.col(AT).is_not_null()).drop(RAW, strict=False), dead


def failures(failed: pl.DataFrame) -> pl.DataFrame:
    """Rows that a function could not take, as dead letters."""
    why = [pl.lit(FAILED).alias(REASON), pl.col(PROBLEM).alias(DETAIL)]
    return with_raw(failed).select(PARTITION, OFFSET, RAW, *why)


def with_raw(rows: pl.DataFrame) -> pl.DataFrame:
    """A record's bytes as they came, or what its columns say, as JSON."""
    if RAW in rows.columns:
        return rows
    mine = pl.struct(pl.exclude(f"^{OWN}.*$")).struct.json_encode().cast(pl.Binary)
    return rows.with_columns(mine.alias(RAW))


def _control(arrived: Arrived, rows: pl.DataFrame, clock: int, flow: Flow, known: tuple[str, ...]) -> Control:
    """What this task saw of each partition, which others there are, and the batch's clock."""
    one = arrived.marks[PARTITION].to_list() == [""]
    timed = rows.filter(pl.col(AT).is_not_null())
    if one:
        highest: dict[str, Any] = {"": timed[AT].max()}
    else:
        highest = dict(timed.group_by(PARTITION).agg(pl.col(AT).max()).iter_rows())
    times = _times(timed, one) if _goes_by_lag(flow.watermark) else {}
    seen = []
    for (name,), told_of in arrived.marks.group_by(PARTITION, maintain_order=True):
        records = told_of.filter(pl.col(MARK) == RECORD)
        ended = bool((told_of[MARK] == ENDED).any())
        first: Any = told_of[OFFSET].min()
        many = int(records["rows"].sum())
        seen.append(Seen(str(name), many, highest.get(str(name)), ended, times=times.get(str(name), ()), first=first))
    heard = {each.partition for each in seen}
    seen += [Seen(name) for name in known if name not in heard]
    return Control(clock, tuple(seen), of=flow.name)


def _goes_by_lag(watermark: Watermark | None) -> bool:
    return watermark is not None and isinstance(watermark.generator, Percentile)


def _times(timed: pl.DataFrame, one: bool) -> dict[str, tuple[int, ...]]:
    ordered = timed.sort(PARTITION, OFFSET)
    if one:
        return {"": tuple(ordered[AT].to_list())}
    return {name: tuple(each) for name, each in ordered.group_by(PARTITION, maintain_order=True).agg(AT).iter_rows()}
