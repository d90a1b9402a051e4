"""Play one batch of one key group: run the kernel step, and send its rows to the next steps and to delivery."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace

import polars as pl

from strandline.errors import StateError
from strandline.execution.batch import Batch
from strandline.execution.block_addresses import address, to_deliver_from
from strandline.execution.lookups.lookups import Lookups
from strandline.execution.prepare import Blocks, RowSource, Steps, feed
from strandline.execution.stateless_steps import aggregating, run_operations
from strandline.kernel.blocks.block import AT, END, INPUT, OFFSET, PARTITION, SIGN, START, Block
from strandline.kernel.dead_letters import SOURCE
from strandline.kernel.operators import operator_of
from strandline.kernel.output import Counts, counts_of, counts_to_facts
from strandline.kernel.panics import POLARS_FAILURE, message_of
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

_SPAN = 1 << 32
"""Upper bound of the panes of one key group in one batch."""


def spec_of(keyed: KeyedStep, known: Mapping[int, tuple[str, ...]] | None = None) -> StepSpec:
    """Return the step as the kernel needs it. With several inputs, their watermarks are combined.

    `known` has the partitions of each scan in this batch, also those without records.
    """
    (first, *more) = keyed.inputs
    paths = keyed.operator_inputs
    if not more and first.watermark is not None:
        return StepSpec(keyed.keys, keyed.operator, first.watermark, _partitions(first, known), paths=paths)
    inputs = tuple(Input(each.name, each.watermark, _partitions(each, known)) for each in keyed.inputs)
    rule = Inputs(tuple(each.name for each in inputs))
    return StepSpec(keyed.keys, keyed.operator, rule, inputs=inputs, paths=paths)


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
    stepped = _without_failures(_stepped(keyed, group, held, blocks, controls, batch), keyed, group, dead)
    sent: Blocks = []
    frames: dict[str, pl.DataFrame] = {}
    for route in keyed.routes:
        rows, unmatched = _routed(stepped, keyed, group, route, dead, batch)
        counts += Counts(unmatched=unmatched)
        if route.output is not None:
            frames |= {} if rows is None else {f"out:{route.output}": _with_retraction(rows)}
        else:
            sent += _to_next_step(rows, stepped, (keyed, group), steps[route.step or 0], route.input, batch, dead)
    if stepped.late is not None:
        frames[f"late:{keyed.late_to}"] = _late(stepped.late, keyed)
    if dead:
        # Panes are not source records, and their columns are JSON already.
        frames[f"dead:{keyed.dead_to}"] = outgoing(pl.concat(dead, how="vertical"), None, None, keyed.mask)
    total = counts + counts_of(stepped)
    facts = {
        "step": keyed.number,
        # All key groups of a step have the same progress, so one sends it.
        **({"progress": progress_to_facts(stepped.progress)} if group == 0 else {}),
        "counts": {keyed.name: counts_to_facts(total)},
        "output_watermark": stepped.output_watermark,
        "rows": stepped.state_rows,
        "size": stepped.size,
        "due": stepped.due,
        **({"inputs": {role: astuple(each) for role, each in stepped.inputs.items()}} if stepped.inputs else {}),
    }
    return stepped.writes, [*sent, (to_deliver_from(group), Block(frames, facts))]


def _stepped(
    keyed: KeyedStep,
    group: int,
    held: Mapping[str, bytes],
    blocks: Sequence[Block],
    controls: Sequence[Control],
    batch: Batch,
) -> Stepped:
    """Run the kernel; if Polars fails or panics, say where."""
    try:
        return step(held, blocks, controls, spec_of(keyed, batch.partitions))
    except POLARS_FAILURE as problem:
        number = f"batch {batch.stamps[0].batch}" if batch.stamps else "this batch"
        raise StateError(
            f"key group {group} of {keyed.name} cannot process {number}",
            detail=f"{aggregating(keyed)}: {message_of(problem)}",
            hint="the state is unchanged; look at the types and the greatest values of the columns",
        ) from None


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
    placed = stepped.rows.with_columns(*_visible(stepped.rows, keyed), *_position(stepped, keyed, group))
    dead.append(failures(placed.filter(pl.col(PROBLEM).is_not_null()), aggregating(keyed)))
    return replace(stepped, rows=stepped.rows.drop(PROBLEM))


def _position(stepped: Stepped, keyed: KeyedStep, group: int) -> list[pl.Expr]:
    """Return the partition and offset of panes as elements: the key group, and a number that never repeats there."""
    return [
        pl.lit(f"{keyed.name}.{group}").alias(PARTITION),
        (pl.int_range(pl.len(), dtype=pl.Int64) + stepped.batch_number * _SPAN).alias(OFFSET),
    ]


def _routed(
    stepped: Stepped, keyed: KeyedStep, group: int, route: Route, dead: list[pl.DataFrame], batch: Batch
) -> tuple[pl.DataFrame | None, int]:
    """Run the operations of a route on rows; rows on which a user function fails become dead letters.

    Return the rows, and for how many a lookup found nothing.
    """
    rows = stepped.rows
    if rows is None or (not route.operations and route.output is not None):
        return rows, 0
    # As elements of another step, rows get a new position; on the way to an output they keep their own.
    keeps = route.output is not None and OFFSET in rows.columns
    visible = rows.with_columns(*_visible(rows, keyed), *([] if keeps else _position(stepped, keyed, group)))
    name = f"{keyed.name} {route.step} {route.output} {route.input}"
    lookups = Lookups(batch, f"step {keyed.number}.{group:03}", name, stepped.progress.clock)
    passed = run_operations(visible, route.operations, lookups)
    lookups.close()
    if passed.failed is not None:
        dead.append(failures(passed.failed))
    if route.output is not None:
        return passed.rows.drop(*_added(keyed, rows), strict=False), passed.unmatched
    return passed.rows, passed.unmatched


def _with_retraction(rows: pl.DataFrame) -> pl.DataFrame:
    """Mark retractions for sinks in rows with a sign. Panes are marked already."""
    if SIGN not in rows.columns or RETRACTION in rows.columns:
        return rows
    return rows.with_columns((pl.col(SIGN) < 0).alias(RETRACTION)).drop(SIGN)


def _added(keyed: KeyedStep, rows: pl.DataFrame) -> list[str]:
    """Return the columns that were added for operations only. Rows that are elements keep their position."""
    return [*(name for name in (PARTITION, OFFSET, *keyed.plan.declared) if name not in rows.columns), ORIGIN]


def _visible(rows: pl.DataFrame, keyed: KeyedStep) -> list[pl.Expr]:
    """Return the pane columns that operations can read, under public names; none for other rows.

    A key or an aggregate of the same name stays, such as the window that a step groups panes by.
    """
    if TIMING not in rows.columns:
        return []
    columns = {
        "window_start": instant(START), "window_end": instant(END), "timing": pl.col(TIMING),
        "pane_index": pl.col(INDEX), "is_last": pl.col(LAST), "retraction": pl.col(RETRACTION),
        "overflow_in": overflow_in(keyed.plan.sums),
    }  # fmt: skip
    return [value.alias(name) for name, value in columns.items() if name not in rows.columns]


def overflow_in(names: Sequence[str]) -> pl.Expr:
    """Return the names of the sums of a pane that are null because they have overflowed; null if there are none."""
    if not names:
        return pl.lit(None, pl.String)
    found = pl.concat_str(
        [pl.when(pl.col(name).is_null()).then(pl.lit(name)) for name in names], separator=", ", ignore_nulls=True
    )
    return pl.when(pl.any_horizontal(pl.col(name).is_null() for name in names)).then(found)


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
    if not operator_of(target.operator, target.keys, target.operator_inputs).takes_signs:
        return [at]
    if SIGN in rows.columns:
        return [at, pl.col(SIGN)]
    if RETRACTION not in rows.columns:
        return [at, pl.lit(1, pl.Int64).alias(SIGN)]
    return [at, pl.when(pl.col(RETRACTION)).then(-1).otherwise(1).cast(pl.Int64).alias(SIGN)]


def sender_of(block: Block) -> str:
    """Return the task or key group that sent a block, as a key to sort by; it is unique in a batch."""
    return f"{block.facts['from']} {block.facts['control']['of']} {block.facts.get('input', 0):06}"
