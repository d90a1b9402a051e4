"""One batch of one key group: judge, add, advance, fire, expire. The order is the meaning."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from strandline.errors import StateError
from strandline.kernel import state
from strandline.kernel.blocks import END, NEW, START, Block
from strandline.kernel.panes import Instant, deadlines, fire
from strandline.kernel.prepare import combine, expires
from strandline.kernel.slices import slice_of
from strandline.kernel.watermarks import Control, Progress, advance
from strandline.kernel.windows import span_of
from strandline.model.panes import LateReason
from strandline.model.steps import WindowedStep
from strandline.model.triggers import may_finish
from strandline.model.watermarks import Watermark

REASON = "@reason"
WATERMARK = "@watermark"


@dataclass(frozen=True, slots=True)
class Ask:
    """What a keyed step is to do: by which keys, over which source, and the four questions."""

    keys: tuple[str, ...]
    step: WindowedStep
    watermark: Watermark
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stepped:
    """What a batch changes and what it says: state to write (None removes), panes, late elements, the progress."""

    writes: Mapping[str, bytes | None]
    panes: pl.DataFrame | None
    late: pl.DataFrame | None
    progress: Progress
    contributed: int


def step(held: Mapping[str, bytes], blocks: Sequence[Block], controls: Sequence[Control], ask: Ask) -> Stepped:
    """Plays one batch over what a key group holds."""
    index = state.read_index(held)
    before = index.progress.watermark
    progress = advance(index.progress, controls, ask.partitions, ask.watermark)
    now = Instant(before, progress.watermark, progress.clock)

    number = slice_of(span_of(ask.step.window))
    rows, parts = _gather(blocks, "rows"), _gather(blocks, "parts")
    touched = {n for frame in (rows, parts) if frame is not None for n in frame.select(number).to_series().unique()}
    opened = touched | index.due(progress)
    windows = state.read_slices(held, opened)

    accepted, late = _judge(rows, windows, before, ask)
    added = _add(accepted, parts, before, ask)
    if added is not None:
        windows = state.merge(windows, added, ask.keys, ask.step)
    elif windows is not None:
        windows = windows.with_columns(pl.lit(0, pl.Int64).alias(NEW))

    panes: pl.DataFrame | None = None
    writes: dict[str, bytes | None] = {}
    entries: dict[int, state.Slice] = {}
    if windows is not None:
        panes, windows = fire(windows, ask.keys, ask.step, now)
        ordered = windows.sort(*ask.keys, START, END)
        writes, entries = state.write_slices(ordered, opened, number, deadlines(ask.step, now.after))
    kept = {n: entry for n, entry in index.slices.items() if n not in opened}
    writes[state.INDEX] = state.write_index(state.Index(progress, kept | entries))
    contributed = 0 if added is None else int(added[NEW].sum())
    return Stepped(writes, panes, late, progress, contributed)


def _gather(blocks: Sequence[Block], name: str) -> pl.DataFrame | None:
    found = [block.frames[name] for block in blocks if name in block.frames]
    return pl.concat(found, how="diagonal_relaxed") if found else None


def _judge(
    rows: pl.DataFrame | None, windows: pl.DataFrame | None, before: int, ask: Ask
) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
    """The elements whose windows take them, and those that come too late, each with its reason."""
    if rows is None:
        return None, None
    closed = pl.lit(False)
    if windows is not None and may_finish(ask.step.trigger):
        identity = [*ask.keys, START, END]
        marks = windows.filter(state.CLOSED).select(*identity, pl.lit(True).alias(state.CLOSED))
        rows, closed = rows.join(marks, on=identity, how="left", nulls_equal=True), pl.col(state.CLOSED)
    expired, reasons = expires(ask.step) <= before, LateReason
    reason = pl.when(expired).then(pl.lit(reasons.EXPIRED.value)).when(closed).then(pl.lit(reasons.CLOSED.value))
    judged = rows.with_columns(reason.alias(REASON)).drop(state.CLOSED, strict=False)
    late = judged.filter(pl.col(REASON).is_not_null()).with_columns(pl.lit(before, pl.Int64).alias(WATERMARK))
    return judged.filter(pl.col(REASON).is_null()).drop(REASON), late if late.height else None


def _add(rows: pl.DataFrame | None, parts: pl.DataFrame | None, before: int, ask: Ask) -> pl.DataFrame | None:
    """One row for each key and window that this batch adds to, whichever task it came from."""
    if parts is not None and parts.select((expires(ask.step) <= before).any()).item():
        raise StateError(
            "combined elements reached a window that is already gone",
            detail=f"watermark {before}",
            hint="this is a defect in Strandline: the horizon given to prepare lay below the watermark",
        )
    combined = combine(rows, ask.keys, ask.step) if rows is not None and rows.height else None
    found = [frame for frame in (parts, combined) if frame is not None]
    if not found:
        return None
    if len(found) == 1 and parts is None:
        return found[0]
    together = pl.concat(found, how="diagonal_relaxed")
    merges = [pl.col(NEW).sum(), *(part.merge.alias(part.name) for part in state.parts_of(ask.step))]
    return together.group_by(*ask.keys, START, END).agg(*merges)
