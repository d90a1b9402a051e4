"""One batch of one key group: judge, add, advance, fire, expire. The order is the meaning."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import polars as pl

from strandline.errors import StateError
from strandline.kernel.aggregation.accumulators import (
    TURN,
    Combined,
    combined,
    identity,
    items_of,
    merge_rows,
    merged,
    side_by_side,
    together,
)
from strandline.kernel.blocks.block import AT, COUNTED, END, OFFSET, PARTITION, START, TIME, Block
from strandline.kernel.state import slice_deltas, slice_store
from strandline.kernel.state.partitioning import slices_of
from strandline.kernel.state.slice_rows import changes_of
from strandline.kernel.state.slice_store import CLOSED, Kept
from strandline.kernel.state.state_migrations import in_rows, is_older
from strandline.kernel.watermarks import FOREVER, NEVER, Control, Input, Progress, Rule, advance, advance_inputs
from strandline.kernel.window import count_windows, sessions, shared_slice_store
from strandline.kernel.window.assign import assign, expires, expiry, has_one, max_timestamp, span_of
from strandline.kernel.window.panes import Instant, deadlines, fire
from strandline.kernel.window.prepare import REASON, ROWS, SURE, gather, surely_taken
from strandline.kernel.window.shared_slices import next_over, shares
from strandline.model.panes import LateReason, LateRows, PaneTimestamp
from strandline.model.steps import WindowedStep
from strandline.model.triggers import may_finish
from strandline.model.windows import Count, Session

WATERMARK = "@watermark"
PARTIAL = "@partial"


@dataclass(frozen=True, slots=True)
class Ask:
    """What a keyed step is to do: by which keys, over which source, and the four questions."""

    keys: tuple[str, ...]
    step: WindowedStep
    watermark: Rule
    partitions: tuple[str, ...] = ()
    inputs: tuple[Input, ...] = ()
    """Where there are several, or one is another step; the rule is then how they meet."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """What a batch brings: elements, each beside its windows; combined for windows; combined for what they share."""

    placed: pl.DataFrame | None = None
    parts: Combined | None = None
    strips: Combined | None = None

    @property
    def surely(self) -> int:
        """How many elements are taken without being looked at."""
        return sum(int(each.rows[COUNTED].sum()) for each in (self.parts, self.strips) if each is not None)


@dataclass(frozen=True, slots=True)
class Judged:
    """Elements told apart: those that windows take, each beside one of them; those too late; and how many of each."""

    taken: pl.DataFrame | None = None
    late: pl.DataFrame | None = None
    contributed: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Stepped:
    """What a batch changes and what it says: state to write (None removes), panes, late elements, the progress."""

    writes: Mapping[str, bytes | None]
    panes: pl.DataFrame | None
    late: pl.DataFrame | None
    progress: Progress
    output_watermark: int
    contributed: int
    refused: int
    rows: int
    turn: int = 0
    """The number of this batch, as this key group counts."""
    size: int = 0
    """Bytes that are kept."""


def step(held: Mapping[str, bytes], blocks: Sequence[Block], controls: Sequence[Control], ask: Ask) -> Stepped:
    """Plays one batch over what a key group holds."""
    index = slice_store.read_index(held)
    was, progress = index.progress, _advance(index.progress, controls, ask)
    now = Instant(was.watermark, progress.watermark, was.clock, progress.clock, index.turn)

    came = _arrived(blocks, ask, now)
    strips = shared_slice_store.read(held, index, came.strips, came.placed, progress, ask.step)
    joined = shared_slice_store.add(strips, came.strips, ask.keys, ask.step)
    ripe = shared_slice_store.ripen(joined, ask.keys, ask.step, now)
    touched, due = _touched(came, ripe.windows, ask), slice_store.due(index.slices, progress)
    many = _many(touched)
    # State in an older form becomes what it is now all at once: of what is only half read, half would be forgotten.
    old = is_older(index.form, ask.step)
    few = frozenset[int]() if old else slice_deltas.seldom(index.slices, many, due, ask.step)
    opened = {*many, *due, *(index.slices if old else ())} - few
    there, beside = opened & index.slices.keys(), {n: entry.changes for n, entry in index.slices.items()}
    only = partial(_only, touched)
    sift = partial(slice_deltas.dying, touched=only, keys=ask.keys, ask=ask.step, now=now)
    read = _as_now(slice_store.read_slices(held, there, beside, None if old else sift), ask)
    changing = slice_deltas.begin(held, index.slices, {n: only(n) for n in few}, ask.keys)
    kept = shared_slice_store.recall(
        slice_deltas.with_touched(read, changing), strips, came.placed, ask.keys, ask.step, now
    )
    panes: pl.DataFrame | None = None
    if isinstance(ask.step.window, Count):
        judged = Judged(contributed=0 if came.placed is None else came.placed.height)
        panes, kept = count_windows.count(kept, came.placed, ask.keys, ask.step, ask.step.window, now.after)
        dues = (pl.lit(FOREVER), pl.lit(None, pl.Int64))
    else:
        kept, parts, judged = _judge(kept, came.placed, came.parts, ask, now)
        taken = combined(_counted(judged.taken, kept, ask, now), ask.keys, ask.step)
        added = side_by_side([each for each in (parts, ripe.windows, taken) if each is not None])
        kept = slice_store.add(kept, added, ask.keys, ask.step)
        panes, kept = fire(kept, ask.keys, ask.step, now)
        panes = _told(ripe.panes, panes, ask)
        dues = deadlines(ask.step, now)
    ends = {n: partial(slice_deltas.end, each, keys=ask.keys) for n, each in changing.items()}
    writes, slices = slice_store.write_slices(kept, there, ask.keys, ask.step, dues, ends)
    writes |= {place: None for n in there for place in changes_of(n, beside[n])}
    shared, waits, beside_them = shared_slice_store.write(joined, index, ask.keys, ask.step, now)
    left = {n: entry for n, entry in index.slices.items() if n not in opened}
    after = slice_store.Index(progress, index.turn + 1, left | slices, waits, beside_them)
    writes |= {**shared, slice_store.INDEX: slice_store.write_index(after, {**writes, **shared}, index)}
    contributed = judged.contributed + came.surely
    return Stepped(
        writes, panes, judged.late, progress, after.output_watermark, contributed, judged.refused, after.rows, now.turn,
        after.size,
    )  # fmt: skip


def _as_now(read: Kept, ask: Ask) -> Kept:
    if read.windows is None:
        return read
    windows, items = in_rows(read.windows, read.items, ask.step)
    return replace(read, windows=windows, items=items)


def _advance(before: Progress, controls: Sequence[Control], ask: Ask) -> Progress:
    if ask.inputs:
        return advance_inputs(before, controls, ask.inputs)
    return advance(before, controls, ask.partitions, ask.watermark)


def _arrived(blocks: Sequence[Block], ask: Ask, now: Instant) -> Arrived:
    """What came, as far apart as it must be looked at."""
    found, rows = gather(blocks, ask.step), [block for block in blocks if ROWS in block.frames]
    parts = merged(found, ask.keys, ask.step) if isinstance(ask.step.window, Session) else side_by_side(found)
    if parts is not None and _is_gone(parts.rows, ask, now):
        raise StateError(
            "combined elements reached a window that is already gone",
            detail=f"watermark {now.before}",
            hint="this is a defect in Strandline: the horizon given to prepare lay below the watermark",
        )
    if not shares(ask.step):
        return Arrived(_placed(rows, ask, now), parts)
    if not rows:
        return Arrived(strips=parts)
    elements = pl.concat([block.frames[ROWS] for block in rows], how="diagonal_relaxed")
    fresh, placed = shared_slice_store.apart(elements.with_columns(pl.lit(now.turn).alias(TURN)), ask.step, now)
    fresher = combined(fresh, ask.keys, ask.step)
    return Arrived(placed, None, side_by_side([each for each in (parts, fresher) if each is not None]))


def _is_gone(rows: pl.DataFrame, ask: Ask, now: Instant) -> bool:
    """Whether a window that surely takes what was combined for it is no more."""
    if shares(ask.step):
        earliest: Any = rows[START].min()
        return next_over(ask.step, earliest, NEVER) <= now.before
    first: Any = rows[END].min()
    return first is not None and expiry(ask.step, first) <= now.before


def _placed(blocks: Sequence[Block], ask: Ask, now: Instant) -> pl.DataFrame | None:
    """Elements that came one by one, each beside those of its windows that were not surely taken."""
    found = []
    for block in blocks:
        placed = assign(block.frames[ROWS].with_columns(pl.lit(now.turn).alias(TURN)), ask.step.window)
        horizon = block.facts.get("horizon")
        sure = pl.lit(False) if horizon is None else surely_taken(ask.step, horizon)
        if has_one(ask.step.window):
            found.append(placed.filter(~sure).with_columns(pl.lit(False).alias(SURE)))
        else:
            also = sure.any().over(PARTITION, OFFSET)
            found.append(placed.with_columns(also.alias(SURE)).filter(~sure))
    return pl.concat(found, how="diagonal_relaxed") if found else None


def _touched(came: Arrived, ripe: Combined | None, ask: Ask) -> list[tuple[pl.DataFrame, pl.Series]]:
    """What comes, and beside each row the slice that it comes to."""
    frames = [each.rows for each in (came.parts, ripe) if each is not None]
    frames += [came.placed] if came.placed is not None else []
    span = span_of(ask.step.window)
    return [(frame, slices_of(frame, ask.keys, span)) for frame in frames]


def _many(touched: Sequence[tuple[pl.DataFrame, pl.Series]]) -> dict[int, int]:
    """How many rows come to each slice, at most."""
    found: Counter[int] = Counter()
    for _, numbers in touched:
        found.update(dict(numbers.value_counts().iter_rows()))
    return found


def _only(touched: Sequence[tuple[pl.DataFrame, pl.Series]], number: int) -> list[pl.DataFrame]:
    return [frame.filter(numbers == number) for frame, numbers in touched]


def _judge(
    kept: Kept, placed: pl.DataFrame | None, parts: Combined | None, ask: Ask, now: Instant
) -> tuple[Kept, Combined | None, Judged]:
    """Who is taken and who is too late; sessions meet before that is asked."""
    if isinstance(ask.step.window, Session):
        return _judge_sessions(kept, placed, parts, ask, ask.step.window, now)
    if placed is None:
        return kept, parts, Judged()
    closed = pl.lit(False)
    if kept.windows is not None and may_finish(ask.step.trigger):
        names = identity(ask.keys)
        marks = kept.windows.filter(CLOSED).select(*names, pl.lit(True).alias(CLOSED))
        placed, closed = placed.join(marks, on=names, how="left", nulls_equal=True), pl.col(CLOSED).fill_null(False)
    expired = pl.when(expires(ask.step) <= now.before).then(pl.lit(LateReason.EXPIRED.value))
    reason = expired.when(closed).then(pl.lit(LateReason.CLOSED.value))
    judged = placed.with_columns(reason.alias(REASON)).drop(CLOSED, strict=False)
    return kept, parts, _told_apart(judged, ask, now)


def _judge_sessions(
    kept: Kept, placed: pl.DataFrame | None, parts: Combined | None, ask: Ask, kind: Session, now: Instant
) -> tuple[Kept, Combined | None, Judged]:
    names = identity(ask.keys)
    spans = [frame.select(names) for frame in (placed, None if parts is None else parts.rows) if frame is not None]
    if not spans:
        return kept, parts, Judged()
    met = sessions.meet(
        kept.windows, pl.concat(spans, how="vertical_relaxed"), ask.keys, ask.step, kind.touching, now.before
    )
    kept = sessions.unite(kept, met.live, ask.keys, ask.step, now.before)
    if parts is not None:
        parts = Combined(
            merge_rows([sessions.moved(parts.rows, met.fresh, ask.keys)], ask.keys, ask.step),
            {
                name: together([sessions.moved(frame, met.fresh, ask.keys)], ask.keys, items_of(ask.step)[name])
                for name, frame in parts.items.items()
            },
        )
    if placed is None:
        return kept, parts, Judged()
    return kept, parts, _told_apart(sessions.moved(placed, met.fresh, ask.keys, REASON), ask, now)


def _told_apart(judged: pl.DataFrame, ask: Ask, now: Instant) -> Judged:
    """An element is late only if all its windows refuse it; the one that lives longest is then named."""
    taken = pl.col(REASON).is_null()
    if has_one(ask.step.window):
        accepted, refused = judged.filter(taken), judged.filter(~taken)
        late = _as_late(refused.with_columns(pl.lit(False).alias(PARTIAL)), now)
        return Judged(accepted.drop(REASON, SURE), late, accepted.height, refused.height)
    element = [PARTITION, OFFSET]
    known = judged.with_columns((taken.any().over(element) | pl.col(SURE)).alias(PARTIAL))
    refused = known.filter(pl.col(REASON).is_not_null())
    elements = (
        refused.filter(~pl.col(PARTIAL))
        .sort(END, maintain_order=True)
        .unique(element, keep="last", maintain_order=True)
    )
    late = elements if ask.step.lateness.rows is LateRows.PER_ELEMENT else refused
    contributed = known.filter(taken & ~pl.col(SURE)).select(pl.struct(element).n_unique()).item()
    return Judged(known.filter(taken).drop(REASON, PARTIAL, SURE), _as_late(late, now), contributed, elements.height)


def _as_late(refused: pl.DataFrame, now: Instant) -> pl.DataFrame | None:
    """Refused elements as the late output tells of them."""
    if not refused.height:
        return None
    told = refused.with_columns(pl.lit(now.before, pl.Int64).alias(WATERMARK)).drop(SURE, TURN)
    return told.sort(PARTITION, OFFSET, START)


def _counted(taken: pl.DataFrame | None, kept: Kept, ask: Ask, now: Instant) -> pl.DataFrame | None:
    """The times by which elements hold the output watermark back: not where it has already been."""
    if taken is None or ask.step.pane_timestamp is PaneTimestamp.END_OF_WINDOW:
        return taken
    reached = pl.lit(now.before)
    if kept.windows is not None:
        names = identity(ask.keys)
        holds = kept.windows.select(*names, slice_store.HOLD)
        taken = taken.join(holds, on=names, how="left", nulls_equal=True)
        reached = pl.min_horizontal(reached, pl.col(slice_store.HOLD) - 1)
    counts = (pl.col(AT) > reached) & (max_timestamp() > now.before)
    return taken.with_columns(pl.when(counts).then(pl.col(AT)).alias(TIME)).drop(slice_store.HOLD, strict=False)


def _told(on_time: pl.DataFrame | None, others: pl.DataFrame | None, ask: Ask) -> pl.DataFrame | None:
    """All panes of a batch, in order; those of windows told from their strips are in order already."""
    if on_time is None or others is None:
        return others if on_time is None else on_time
    both = pl.concat([on_time, others], how="diagonal_relaxed")
    return both.sort(*ask.keys, START, END, maintain_order=True)
