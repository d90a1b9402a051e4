"""Run the kernel step in transformWithState. Spark stores state as bytes; the kernel encodes and decodes them."""

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
from strandline.plan.stages import Input as StageInput
from strandline.plan.stages import KeyedStep, Route
from strandline.ports.dead_letter_masking import failures, outgoing
from strandline.spark.batch_properties import Batch, current_batch
from strandline.spark.patches.worker_gc import freeze_imports
from strandline.spark.tasks.block_addresses import address, to_deliver_from
from strandline.spark.tasks.prepare import Blocks, RowSource, Steps, feed
from strandline.spark.tasks.state_map import BLOCK, PLACE, Held
from strandline.spark.tasks.stateless_steps import aggregating, run_operations
from strandline.spark.tasks.task_metrics import Measured, collected, with_metrics

Play = Callable[[int, Mapping[str, bytes], Sequence[Block]], tuple[Mapping[str, bytes | None], Blocks]]
"""Play one batch of a key group: from its address, state and input blocks to state changes and output blocks."""

_SPAN = 1 << 32
"""Upper bound of the panes of one key group in one batch."""


class KeyGroupProcessor(StatefulProcessor):
    """Process one key group, one batch at a time. Blocks for later levels pass unchanged."""

    def __init__(self, play: Play, is_here: Callable[[int], bool]) -> None:
        self._play, self._is_here = play, is_here

    def init(self, handle: StatefulProcessorHandle) -> None:
        freeze_imports()
        self._state = handle.getMapState("blocks", PLACE, BLOCK)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        to = int(key[0])
        if not self._is_here(to):
            yield from (Row(kg=to, block=bytes(row.block)) for row in rows)
            return
        # Spark guarantees no order inside a group, and a replayed batch must give the same bytes.
        blocks = sorted((unpack(bytes(row.block), f"key group {to}, input") for row in rows), key=sender_of)
        begun, held, seen = time.perf_counter(), Held(self._state, to), collected(blocks)
        writes, sent = self._play(to, held, blocks)
        held.write(writes)
        if seen is not None:
            spent = Measured({"step": time.perf_counter() - begun - held.seconds, "state": held.seconds})
            (where, last), sent = sent[-1], sent[:-1]
            sent.append((where, with_metrics(last, seen + spent)))
        yield from (Row(kg=where, block=pack(block)) for where, block in sent)

    def close(self) -> None:
        pass


def play_level(steps: Steps, level: int) -> tuple[Play, Callable[[int], bool]]:
    """Return the play function of one level, and a test whether an address belongs to the level.

    Spark sends the function to each task, so it has only the steps of the level and those that they send rows to.
    """
    mine = [step for step in steps.values() if step.level == level]
    key_groups = {address(step, group): (step, group) for step in mine for group in range(step.groups)}
    targets = {route.step for step in mine for route in step.routes}
    steps = {number: step for number, step in steps.items() if number in targets}

    def play(to: int, held: Mapping[str, bytes], blocks: Sequence[Block]) -> tuple[Mapping[str, bytes | None], Blocks]:
        step, group = key_groups[to]
        return play_group(step, group, held, blocks, steps, current_batch())

    return play, key_groups.__contains__


def spec_of(keyed: KeyedStep, known: Mapping[int, tuple[str, ...]] | None = None) -> StepSpec:
    """Return the step as the kernel needs it. With several inputs, their watermarks are combined.

    `known` has the partitions of each scan in this batch, also those without records.
    """
    (first, *more) = keyed.inputs
    if not more and first.watermark is not None:
        return StepSpec(keyed.keys, keyed.operator, first.watermark, _partitions(first, known))
    inputs = tuple(Input(each.name, each.watermark, _partitions(each, known)) for each in keyed.inputs)
    return StepSpec(keyed.keys, keyed.operator, Inputs(tuple(each.name for each in inputs)), inputs=inputs)


def _partitions(given: StageInput, known: Mapping[int, tuple[str, ...]] | None) -> tuple[str, ...]:
    found = () if known is None or given.scan is None else known.get(given.scan, ())
    return (*given.partitions, *found)


def play_group(
    keyed: KeyedStep, group: int, held: Mapping[str, bytes], blocks: Sequence[Block], steps: Steps, batch: Batch
) -> tuple[Mapping[str, bytes | None], Blocks]:
    """Play one batch of one key group; return its state changes, and blocks for later steps and delivery."""
    controls = [control_from_facts(block.facts["control"]) for block in blocks]
    counts = sum((Counts(**block.facts["counts"]) for block in blocks), Counts())
    dead: list[pl.DataFrame] = []
    stepped = _without_failures(step(held, blocks, controls, spec_of(keyed, batch.partitions)), keyed, group, dead)
    sent: Blocks = []
    frames: dict[str, pl.DataFrame] = {}
    for route in keyed.routes:
        rows = _routed(stepped, keyed, group, route, dead)
        if route.output is not None:
            frames |= {} if rows is None else {f"out:{route.output}": _with_retraction(rows)}
        else:
            sent += _to_next_step(rows, stepped, (keyed, group), steps[route.step or 0], route.input, batch, dead)
    if stepped.late is not None:
        frames[f"late:{keyed.late_to}"] = _late(stepped.late, keyed)
    if dead:
        # Panes are not source records, and their columns are JSON already.
        frames[f"dead:{keyed.dead_to}"] = outgoing(pl.concat(dead, how="vertical"), None, None, keyed.mask)
    total = counts + Counts(contributed=stepped.contributed, late=stepped.refused, filtered=stepped.filtered)
    facts = {
        "step": keyed.number,
        # All key groups of a step have the same progress, so one sends it.
        **({"progress": progress_to_facts(stepped.progress)} if group == 0 else {}),
        "counts": {keyed.name: counts_to_facts(total)},
        "output_watermark": stepped.output_watermark,
        "rows": stepped.state_rows,
        "size": stepped.size,
        "due": stepped.due,
    }
    return stepped.writes, [*sent, (to_deliver_from(group), Block(frames, facts))]


def _late(late: pl.DataFrame, keyed: KeyedStep) -> pl.DataFrame:
    """Add the source of each late element if the step has several; partition and offset alone do not identify it."""
    shown = late.drop(SALT, HELD, strict=False)
    if INPUT not in shown.columns:
        return shown
    names = {number: path.origin for number, path in enumerate(keyed.paths)}
    origin = pl.col(INPUT).replace_strict(names, return_dtype=pl.String).alias(SOURCE)
    return shown.with_columns(origin).drop(INPUT)


def _without_failures(stepped: Stepped, keyed: KeyedStep, group: int, dead: list[pl.DataFrame]) -> Stepped:
    """Make dead letters of panes on which a user aggregate raised; the pane itself has null for that aggregate."""
    if stepped.rows is None or PROBLEM not in stepped.rows.columns:
        return stepped
    placed = stepped.rows.with_columns(*_visible(stepped.rows), *_position(stepped, keyed, group))
    dead.append(failures(placed.filter(pl.col(PROBLEM).is_not_null()), aggregating(keyed)))
    return replace(stepped, rows=stepped.rows.drop(PROBLEM))


def _position(stepped: Stepped, keyed: KeyedStep, group: int) -> list[pl.Expr]:
    """Return the partition and offset of panes as elements: the key group, and a number that never repeats there."""
    return [
        pl.lit(f"{keyed.name}.{group}").alias(PARTITION),
        (pl.int_range(pl.len(), dtype=pl.Int64) + stepped.turn * _SPAN).alias(OFFSET),
    ]


def _routed(
    stepped: Stepped, keyed: KeyedStep, group: int, route: Route, dead: list[pl.DataFrame]
) -> pl.DataFrame | None:
    """Run the operations of a route on rows; rows on which a user function fails become dead letters."""
    rows = stepped.rows
    if rows is None or (not route.operations and route.output is not None):
        return rows
    # As elements of another step, rows get a new position; on the way to an output they keep their own.
    keeps = route.output is not None and OFFSET in rows.columns
    visible = rows.with_columns(*_visible(rows), *([] if keeps else _position(stepped, keyed, group)))
    passed = run_operations(visible, route.operations)
    if passed.failed is not None:
        dead.append(failures(passed.failed))
    if route.output is not None:
        return passed.rows.drop(*_added(keyed, rows), strict=False)
    return passed.rows


def _with_retraction(rows: pl.DataFrame) -> pl.DataFrame:
    """Mark retractions for sinks in rows with a sign. Panes are marked already."""
    if SIGN not in rows.columns or RETRACTION in rows.columns:
        return rows
    return rows.with_columns((pl.col(SIGN) < 0).alias(RETRACTION)).drop(SIGN)


def _added(keyed: KeyedStep, rows: pl.DataFrame) -> list[str]:
    """Return the columns that were added for operations only. Rows that are elements keep their position."""
    return [*(name for name in (PARTITION, OFFSET) if name not in rows.columns), ORIGIN, *keyed.plan.declared]


def _visible(rows: pl.DataFrame) -> list[pl.Expr]:
    """Return the pane columns that operations can read, under public names; none for other rows."""
    if TIMING not in rows.columns:
        return []
    return [
        instant(START).alias("window_start"), instant(END).alias("window_end"), pl.col(TIMING).alias("timing"),
        pl.col(INDEX).alias("pane_index"), pl.col(LAST).alias("is_last"), pl.col(RETRACTION).alias("retraction"),
    ]  # fmt: skip


def instant(name: str) -> pl.Expr:
    """Convert milliseconds to a timestamp; the ends of time become null."""
    ms = pl.col(name)
    inside = pl.when((ms != NEVER) & (ms != FOREVER)).then(ms)
    return pl.from_epoch(inside, time_unit="ms").cast(pl.Datetime("us")).dt.replace_time_zone("UTC")


def _to_next_step(
    rows: pl.DataFrame | None,
    stepped: Stepped,
    sender: tuple[KeyedStep, int],
    target: KeyedStep,
    path: int,
    batch: Batch,
    dead: list[pl.DataFrame],
) -> Blocks:
    """Send rows to the next step as elements, with the output watermark of this key group."""
    keyed, group = sender
    name = f"{keyed.name}.{group:03}"
    mark = Seen(keyed.name, watermark=stepped.output_watermark, idle=stepped.progress.is_idle)
    control = control_to_facts(Control(stepped.progress.clock, (mark,), of=keyed.name))
    if rows is None:
        facts = {"control": control, "from": name, "counts": counts_to_facts(Counts())}
        return [(address(target, number), Block(facts=facts)) for number in range(target.groups)]
    # Salted elements that are unpacked here keep their time.
    has_time = AT in rows.columns
    elements = rows.select(pl.exclude("^@.*$"), PARTITION, OFFSET, *_time_and_sign(rows, target))
    counts = Counts(again=elements.height)
    origin = RowSource(name, path, is_probed=has_time)
    blocks, refused = feed(elements, target, origin, control, batch, counts)
    if refused.height:
        dead.append(refused)
    return blocks


def _time_and_sign(rows: pl.DataFrame, target: KeyedStep) -> list[pl.Expr]:
    """Return the time of rows as elements of another step, and their sign if that step reads signs."""
    at = pl.col(AT)
    if AT not in rows.columns:
        # Panes of a global window have the end of time, which elements cannot have.
        at = pl.min_horizontal(pl.col(TIMESTAMP), pl.lit(FOREVER - 1)).alias(AT)
    if not operator_of(target.operator, target.keys).takes_signs:
        return [at]
    if SIGN in rows.columns:
        return [at, pl.col(SIGN)]
    if RETRACTION not in rows.columns:
        return [at, pl.lit(1, pl.Int64).alias(SIGN)]
    return [at, pl.when(pl.col(RETRACTION)).then(-1).otherwise(1).cast(pl.Int64).alias(SIGN)]


def sender_of(block: Block) -> str:
    """Return the task or key group that sent a block, as a key to sort by; it is unique in a batch."""
    return f"{block.facts['from']} {block.facts['control']['of']} {block.facts.get('input', 0):06}"
