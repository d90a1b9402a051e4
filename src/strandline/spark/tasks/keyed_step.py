"""transformWithState around the kernel's step: Spark keeps the bytes, the kernel knows what they mean."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from strandline.kernel.blocks.block import AT, END, INPUT, OFFSET, PARTITION, SIGN, START, Block, pack, unpack
from strandline.kernel.dead_letters import SOURCE
from strandline.kernel.operators import operator_of
from strandline.kernel.output import Counts, counts_to_facts
from strandline.kernel.salting import HELD, SALT
from strandline.kernel.stateless_steps import ORIGIN, PROBLEM
from strandline.kernel.step import Stepped, StepSpec, step
from strandline.kernel.watermarks import (
    FOREVER,
    NEVER,
    Control,
    Input,
    Seen,
    control_from_facts,
    control_to_facts,
    progress_to_facts,
)
from strandline.kernel.window.panes import INDEX, LAST, RETRACTION, TIMESTAMP, TIMING
from strandline.model.watermarks import Inputs
from strandline.plan.stages import KeyedStep, Route
from strandline.ports.dead_letter_masking import failures, outgoing
from strandline.spark.batch_properties import Batch, told
from strandline.spark.patches.worker_gc import spare_imports
from strandline.spark.tasks.block_addresses import address, to_deliver_from
from strandline.spark.tasks.prepare import Blocks, From, Steps, feed
from strandline.spark.tasks.state_map import BLOCK, PLACE, Held
from strandline.spark.tasks.stateless_steps import aggregating, run_operations
from strandline.spark.tasks.task_metrics import Measured, asked_for, telling

Play = Callable[[int, Mapping[str, bytes], Sequence[Block]], tuple[Mapping[str, bytes | None], Blocks]]
"""What a key group does with a batch: from its address, what it holds and what comes, to what it keeps and sends."""

_SPAN = 1 << 32
"""The most panes of one key group in one batch."""


class KeyGroupProcessor(StatefulProcessor):
    """One key group, one batch at a time. What is addressed past this level goes on as it came."""

    def __init__(self, play: Play, mine: Callable[[int], bool]) -> None:
        self._play, self._mine = play, mine

    def init(self, handle: StatefulProcessorHandle) -> None:
        spare_imports()
        self._state = handle.getMapState("blocks", PLACE, BLOCK)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        to = int(key[0])
        if not self._mine(to):
            yield from (Row(kg=to, block=bytes(row.block)) for row in rows)
            return
        # Spark promises no order inside a group, and a replayed batch must give the same bytes.
        blocks = sorted((unpack(bytes(row.block), f"key group {to}, input") for row in rows), key=place_of)
        begun, held, seen = time.perf_counter(), Held(self._state, to), asked_for(blocks)
        writes, sent = self._play(to, held, blocks)
        held.write(writes)
        if seen is not None:
            spent = Measured({"step": time.perf_counter() - begun - held.seconds, "state": held.seconds})
            (where, last), sent = sent[-1], sent[:-1]
            sent.append((where, telling(last, seen + spent)))
        yield from (Row(kg=where, block=pack(block)) for where, block in sent)

    def close(self) -> None:
        pass


def play_level(steps: Steps, level: int) -> tuple[Play, Callable[[int], bool]]:
    """How the key groups of one level play, and which they are."""
    mine = {
        address(step, group): (step, group)
        for step in steps.values()
        if step.level == level
        for group in range(step.groups)
    }

    def play(to: int, held: Mapping[str, bytes], blocks: Sequence[Block]) -> tuple[Mapping[str, bytes | None], Blocks]:
        step, group = mine[to]
        return play_group(step, group, held, blocks, steps, told())

    return play, mine.__contains__


def spec_of(keyed: KeyedStep) -> StepSpec:
    """What the kernel is asked for a step; how several inputs meet is said by the inputs."""
    (first, *more) = keyed.inputs
    if not more and first.watermark is not None:
        return StepSpec(keyed.keys, keyed.operator, first.watermark, first.partitions)
    inputs = tuple(Input(each.name, each.watermark, each.partitions) for each in keyed.inputs)
    return StepSpec(keyed.keys, keyed.operator, Inputs(tuple(each.name for each in inputs)), inputs=inputs)


def play_group(
    keyed: KeyedStep, group: int, held: Mapping[str, bytes], blocks: Sequence[Block], steps: Steps, batch: Batch
) -> tuple[Mapping[str, bytes | None], Blocks]:
    """One batch of one key group: what it keeps, and what it sends to the steps after it and to be delivered."""
    controls = [control_from_facts(block.facts["control"]) for block in blocks]
    counts = sum((Counts(**block.facts["counts"]) for block in blocks), Counts())
    dead: list[pl.DataFrame] = []
    stepped = _without_problems(step(held, blocks, controls, spec_of(keyed)), keyed, group, dead)
    sent: Blocks = []
    frames: dict[str, pl.DataFrame] = {}
    for route in keyed.routes:
        rows = _passed(stepped, keyed, group, route, dead)
        if route.output is not None:
            frames |= {} if rows is None else {f"out:{route.output}": _with_retraction(rows)}
        else:
            sent += _fed(rows, stepped, (keyed, group), steps[route.step or 0], route.input, batch, dead)
    if stepped.late is not None:
        frames[f"late:{keyed.late_to}"] = _late(stepped.late, keyed)
    if dead:
        # Panes are no records of a source, and their columns are JSON already.
        frames[f"dead:{keyed.dead_to}"] = outgoing(pl.concat(dead, how="vertical"), None, None, keyed.mask)
    everyone = counts + Counts(contributed=stepped.contributed, late=stepped.refused, filtered=stepped.filtered)
    facts = {
        "step": keyed.number,
        "progress": progress_to_facts(stepped.progress),
        "counts": {keyed.name: counts_to_facts(everyone)},
        "output_watermark": stepped.output_watermark,
        "rows": stepped.state_rows,
        "size": stepped.size,
    }
    return stepped.writes, [*sent, (to_deliver_from(keyed, group), Block(frames, facts))]


def _late(late: pl.DataFrame, keyed: KeyedStep) -> pl.DataFrame:
    """Name the origin of each late element where a step has several; partition and offset alone do not identify it."""
    shown = late.drop(SALT, HELD, strict=False)
    if INPUT not in shown.columns:
        return shown
    names = {number: strand.origin for number, strand in enumerate(keyed.strands)}
    origin = pl.col(INPUT).replace_strict(names, return_dtype=pl.String).alias(SOURCE)
    return shown.with_columns(origin).drop(INPUT)


def _without_problems(stepped: Stepped, keyed: KeyedStep, group: int, dead: list[pl.DataFrame]) -> Stepped:
    """Panes for which a user's aggregate raised have null in its place, and a dead letter that says why."""
    if stepped.rows is None or PROBLEM not in stepped.rows.columns:
        return stepped
    placed = stepped.rows.with_columns(*_visible(stepped.rows), *_position(stepped, keyed, group))
    dead.append(failures(placed.filter(pl.col(PROBLEM).is_not_null()), aggregating(keyed)))
    return replace(stepped, rows=stepped.rows.drop(PROBLEM))


def _position(stepped: Stepped, keyed: KeyedStep, group: int) -> list[pl.Expr]:
    """Where a pane stands among all that a key group has ever told."""
    return [
        pl.lit(f"{keyed.name}.{group}").alias(PARTITION),
        (pl.int_range(pl.len(), dtype=pl.Int64) + stepped.turn * _SPAN).alias(OFFSET),
    ]


def _passed(
    stepped: Stepped, keyed: KeyedStep, group: int, route: Route, dead: list[pl.DataFrame]
) -> pl.DataFrame | None:
    """The panes at the end of a route, and dead letters for those that a function could not take."""
    rows = stepped.rows
    if rows is None or (not route.operations and route.output is not None):
        return rows
    # As elements of another step rows are identified by where they come from; on their way out they keep their own.
    keeps = route.output is not None and OFFSET in rows.columns
    seen = rows.with_columns(*_visible(rows), *([] if keeps else _position(stepped, keyed, group)))
    passed = run_operations(seen, route.operations)
    if passed.failed is not None:
        dead.append(failures(passed.failed))
    if route.output is not None:
        return passed.rows.drop(*_own(keyed, rows), strict=False)
    return passed.rows


def _with_retraction(rows: pl.DataFrame) -> pl.DataFrame:
    """Mark retractions for sinks, where rows carry a sign; panes are marked already."""
    if SIGN not in rows.columns or RETRACTION in rows.columns:
        return rows
    return rows.with_columns((pl.col(SIGN) < 0).alias(RETRACTION)).drop(SIGN)


def _own(keyed: KeyedStep, rows: pl.DataFrame) -> list[str]:
    """Name the columns that were added for operations only; rows that are elements keep their position."""
    return [*(name for name in (PARTITION, OFFSET) if name not in rows.columns), ORIGIN, *keyed.plan.declared]


def _visible(rows: pl.DataFrame) -> list[pl.Expr]:
    """Return what operations can read of a pane, under public names; other rows declare nothing."""
    if TIMING not in rows.columns:
        return []
    return [
        instant(START).alias("window_start"), instant(END).alias("window_end"), pl.col(TIMING).alias("timing"),
        pl.col(INDEX).alias("pane_index"), pl.col(LAST).alias("is_last"), pl.col(RETRACTION).alias("retraction"),
    ]  # fmt: skip


def instant(name: str) -> pl.Expr:
    """A bound as a time; the ends of time are none."""
    ms = pl.col(name)
    inside = pl.when((ms != NEVER) & (ms != FOREVER)).then(ms)
    return pl.from_epoch(inside, time_unit="ms").cast(pl.Datetime("us")).dt.replace_time_zone("UTC")


def _fed(
    rows: pl.DataFrame | None,
    stepped: Stepped,
    sender: tuple[KeyedStep, int],
    target: KeyedStep,
    strand: int,
    batch: Batch,
    dead: list[pl.DataFrame],
) -> Blocks:
    """Panes as the elements of another step; with them, how far time has come here."""
    keyed, group = sender
    name = f"{keyed.name}.{group:03}"
    mark = Seen(keyed.name, watermark=stepped.output_watermark, idle=stepped.progress.is_idle)
    control = control_to_facts(Control(stepped.progress.clock, (mark,), of=keyed.name))
    if rows is None:
        facts = {"control": control, "from": name, "counts": counts_to_facts(Counts())}
        return [(address(target, number), Block(facts=facts)) for number in range(target.groups)]
    # Elements that were spread and are gathered here keep the time they came with.
    gathered = AT in rows.columns
    elements = rows.select(pl.exclude("^@.*$"), PARTITION, OFFSET, *_time_and_sign(rows, target))
    counts = Counts(again=elements.height)
    sent = From(name, strand, is_probed=gathered)
    blocks, refused = feed(elements, target, sent, control, batch, counts)
    if refused.height:
        dead.append(refused)
    return blocks


def _time_and_sign(rows: pl.DataFrame, target: KeyedStep) -> list[pl.Expr]:
    """Return the time of rows as elements of another step, and their sign where that step takes one."""
    at = pl.col(AT)
    if AT not in rows.columns:
        # A window without an end has panes at the end of time, which elements cannot have.
        at = pl.min_horizontal(pl.col(TIMESTAMP), pl.lit(FOREVER - 1)).alias(AT)
    if not operator_of(target.operator, target.keys).takes_signs:
        return [at]
    if SIGN in rows.columns:
        return [at, pl.col(SIGN)]
    if RETRACTION not in rows.columns:
        return [at, pl.lit(1, pl.Int64).alias(SIGN)]
    return [at, pl.when(pl.col(RETRACTION)).then(-1).otherwise(1).cast(pl.Int64).alias(SIGN)]


def place_of(block: Block) -> str:
    """Which task or key group sent it: no two are the same."""
    return f"{block.facts['from']} {block.facts['control']['of']} {block.facts.get('input', 0):06}"
