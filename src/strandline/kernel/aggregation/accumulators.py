"""Build, merge and read the accumulators of windows.

An accumulator is columns in the window's row, or item rows in a frame of their own. Every function here groups by
identity (key, start, end), so it works for every kind of window.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal

import numpy as np
import polars as pl

from strandline.kernel.aggregation import overflow, retractable_aggregates
from strandline.kernel.aggregation.aggregates import MANY, InItems, InRow, Items, Part, columns_of
from strandline.kernel.aggregation.first_last import Pick, ranked
from strandline.kernel.aggregation.overflow import at_risk, carry_of, without_empty_carries
from strandline.kernel.blocks.block import (
    AT,
    COUNTED,
    EARLIEST,
    END,
    NEW,
    NEWEST,
    OFFSET,
    PARTITION,
    SIGN,
    START,
    TIME,
    Frames,
)
from strandline.kernel.blocks.python_values import python_values
from strandline.kernel.blocks.small_frames import only, stacked
from strandline.kernel.blocks.sorting import Fold, fold_by_key, is_worth_it
from strandline.kernel.panics import ANY_FAILURE
from strandline.kernel.state.partitioning import span_of
from strandline.kernel.stateless_steps import PROBLEM
from strandline.kernel.watermarks import FOREVER, NEVER
from strandline.model.aggregates import columns_of as read_by
from strandline.model.evictors import KeepDelta
from strandline.model.expressions import names_of
from strandline.model.panes import PaneTimestamp
from strandline.model.steps import WindowedStep
from strandline.model.triggers import reads_event_time
from strandline.model.windows import Tumbling

ELEMENTS = "elements"
"""Name of the items frame that keeps whole elements, because an evictor must look at each of them."""
TURN = "@turn"
"""Number of the batch that an element arrived in. With the element's position it gives the order of arrival."""

_WIDE_INTEGERS: Final = (pl.UInt64, pl.Int128, pl.UInt128)
"""Integers whose sum has more than 64 bits in Polars."""
_WORTH_IT: Final = 10_000
_MAX_WINDOWS: Final = 64
"""Above this many distinct windows in a frame, all rows are grouped at once."""
_MIN_ROWS_PER_WINDOW: Final = 10_000
"""With at least this average number of rows per window, grouping window by window is faster than all rows at once."""


@dataclass(frozen=True, slots=True)
class Combined:
    """Accumulators combined from elements: one row for each window, and item rows."""

    rows: pl.DataFrame
    items: Frames
    repeats: bool = False
    """Whether a window may have several rows that are not merged yet."""


@cache
def parts_of(step: WindowedStep) -> tuple[Part, ...]:
    """Return the accumulator columns that are kept in window rows."""
    return tuple(part for _, kept in _accumulators(step) if isinstance(kept, InRow) for part in kept.parts)


@cache
def picks_of(step: WindowedStep) -> tuple[Pick, ...]:
    """Return the accumulators that keep one picked element (first, last, arg_min, arg_max)."""
    return tuple(kept.pick for _, kept in _accumulators(step) if isinstance(kept, InRow) and kept.pick is not None)


@cache
def sets_of(step: WindowedStep) -> tuple[str, ...]:
    """Return the names of the aggregates that keep a list of distinct values (count_distinct)."""
    return tuple(name for name, kept in _accumulators(step) if isinstance(kept, InRow) and kept.is_set)


@cache
def plain_parts(step: WindowedStep) -> tuple[Part, ...]:
    """Return the row accumulators that are not picks. Each is built and merged independently."""
    return tuple(
        part for _, kept in _accumulators(step) if isinstance(kept, InRow) and kept.pick is None for part in kept.parts
    )


@cache
def items_of(step: WindowedStep) -> Mapping[str, Items]:
    """Return the item accumulators by name."""
    if step.evictor is not None:
        return {ELEMENTS: _elements(step)}
    return {kept.items.name: kept.items for _, kept in _accumulators(step) if isinstance(kept, InItems)}


def _accumulators(step: WindowedStep) -> list[tuple[str, InRow | InItems]]:
    """Return the accumulators by aggregate name. An evictor needs whole elements instead."""
    if step.evictor is not None:
        return []
    return [*_layouts(step).items()]


@cache
def _layouts(step: WindowedStep) -> Mapping[str, InRow | InItems]:
    """Return the accumulator layout of each aggregate."""
    layout_of = retractable_aggregates.columns_of if step.signed else columns_of
    return {name: layout_of(name, aggregate) for name, aggregate in step.aggregates}


def _elements(step: WindowedStep) -> Items:
    """Keep every element, with the columns that an aggregate or the evictor reads."""
    needed = {AT, PARTITION, OFFSET, TURN} | ({SIGN} if step.signed else set())
    needed |= {name for _, each in step.aggregates for name in read_by(each)}
    if isinstance(step.evictor, KeepDelta):
        needed |= {name.name for name in names_of(step.evictor.distance.tree)}
    return Items(ELEMENTS, {name: pl.col(name) for name in sorted(needed)}, pl.lit(True), ())


def identity(keys: Sequence[str]) -> list[str]:
    """Return the columns that identify a window: the keys and its bounds."""
    return [*keys, START, END]


def combine(placed: pl.DataFrame, keys: Sequence[str], step: WindowedStep, some: pl.Series | None = None) -> Combined:
    """Combine elements, one row per (element, window), into one row per window and item rows.

    `some` selects the rows to combine; without it all are combined.
    """
    many = pl.len().cast(pl.Int64)
    counted = pl.col(NEWEST).sum().cast(pl.Int64) if NEWEST in placed.columns else many
    made = [many.alias(NEW), counted.alias(COUNTED)]
    made += [each for part in plain_parts(step) for each in _partials(part, placed, step)]
    if needs_earliest(step):
        made.append(pl.col(AT).min().alias(EARLIEST))
    if step.pane_timestamp is not PaneTimestamp.END_OF_WINDOW:
        made.append(_combined_time(placed, step).alias(TIME))
    # Grouping without order is faster. Rows are sorted later, before they are stored or emitted.
    picks = picks_of(step)
    needed = dict.fromkeys([*_input_columns(keys, made), *(name for pick in picks for name in pick.columns.values())])
    ranks = ranked(_filtered(only(placed, [*needed]), some), picks, elements=True)
    rows = ranks.fetched(grouped(ranks.frame, keys, step, [*made, *ranks.made]))
    return Combined(
        rows, {name: _make_items(_filtered(placed, some), keys, kind) for name, kind in items_of(step).items()}
    )


def _filtered(frame: pl.DataFrame, some: pl.Series | None) -> pl.DataFrame:
    return frame if some is None else frame.filter(some)


def _input_columns(keys: Sequence[str], made: Sequence[pl.Expr]) -> list[str]:
    """Return the columns that the expressions read. Copying the others would cost as much as the grouping."""
    return list(dict.fromkeys([*identity(keys), *(name for each in made for name in each.meta.root_names())]))


def _partials(part: Part, placed: pl.DataFrame, step: WindowedStep) -> list[pl.Expr]:
    """Return the columns that an accumulator gets from elements: one, or a sum and its carry."""
    if part.sums is None:
        return [part.partial.alias(part.name)]
    kind = placed.schema[part.sums]
    if not at_risk(placed[part.sums]):
        made = part.partial.cast(pl.Int64) if kind in _WIDE_INTEGERS else part.partial
        return [made.alias(part.name)]
    values = overflow.units(pl.col(part.sums))
    return overflow.sums(values * pl.col(SIGN) if step.signed else values, part.name, kind)


def grouped(frame: pl.DataFrame, keys: Sequence[str], step: WindowedStep, made: Sequence[pl.Expr]) -> pl.DataFrame:
    """Group to one row for each identity.

    Few and large windows are grouped one by one, since grouping by keys alone is faster.
    """
    return without_empty_carries(_grouped(frame, keys, step, made), sums_of(step))


def _grouped(frame: pl.DataFrame, keys: Sequence[str], step: WindowedStep, made: Sequence[pl.Expr]) -> pl.DataFrame:
    if frame.height < _WORTH_IT:
        return frame.group_by(identity(keys)).agg(*made)
    narrow = frame.select(_input_columns(keys, made))
    engine = _engine(narrow, keys)
    bound = None if span_of(step.window) is None else _window_columns(frame, step)
    if bound is None:
        return narrow.lazy().group_by(identity(keys)).agg(*made).collect(engine=engine)
    windows = narrow.partition_by(bound, include_key=True)
    queries = []
    for window in windows:
        span = [pl.lit(window[name][0], pl.Int64).alias(name) for name in (START, END)]
        groups = window.lazy().group_by(keys)
        queries.append(groups.agg(*made).select(*keys, *span, pl.exclude(keys)))
    return pl.concat(pl.collect_all(queries, engine=engine))


def _engine(frame: pl.DataFrame, keys: Sequence[str]) -> Literal["streaming", "in-memory"]:
    """Choose the Polars engine.

    The streaming engine groups many keys in half the time. It adds in any order, so every value must be an integer.
    """
    is_exact = all(kind.is_integer() or (name in keys and kind == pl.String) for name, kind in frame.schema.items())
    return "streaming" if is_exact else "in-memory"


def _window_columns(frame: pl.DataFrame, step: WindowedStep) -> list[str] | None:
    """Return the window columns to partition by; None if windows are many or small."""
    limit = min(_MAX_WINDOWS, frame.height // _MIN_ROWS_PER_WINDOW)
    if isinstance(step.window, Tumbling):
        first, last = frame.select(pl.col(START).min(), pl.col(END).max()).row(0)
        if first > NEVER and last < FOREVER and last - first <= limit * step.window.size.ms:
            return [START]
    starts, ends = frame[START].n_unique(), frame[END].n_unique()
    if max(starts, ends) > limit:
        return None
    # Windows with one start have one end, except cumulative windows and windows cut at the ends of time.
    return [START] if starts == ends else [START, END]


def needs_earliest(step: WindowedStep) -> bool:
    """Tell whether the trigger reads the event time of the earliest new element."""
    return reads_event_time(step.trigger)


def _combined_time(placed: pl.DataFrame, step: WindowedStep) -> pl.Expr:
    """Combine the times of elements to one pane time. TIME, where present, has null for elements that do not count."""
    times = pl.col(TIME if TIME in placed.columns else AT)
    return times.max() if step.pane_timestamp is PaneTimestamp.LATEST else times.min()


def _make_items(placed: pl.DataFrame, keys: Sequence[str], kind: Items) -> pl.DataFrame:
    made = placed.select(
        *identity(keys), *(value.alias(f"{name}") for name, value in _columns_besides_keys(kind, keys).items())
    )
    return together([made.filter(kind.keep)], keys, kind)


def _columns_besides_keys(kind: Items, keys: Sequence[str]) -> dict[str, pl.Expr]:
    """Return the item columns that are not keys; key columns are selected already."""
    return {name: value for name, value in kind.made.items() if name not in keys}


def together(frames: Sequence[pl.DataFrame], keys: Sequence[str], kind: Items) -> pl.DataFrame:
    """Merge items from several frames into one, and keep the first `kind.most` of each window."""
    both = pl.concat(frames, how="diagonal_relaxed")
    if kind.by:
        groups = both.group_by(*identity(keys), *kind.by, maintain_order=True)
        both = groups.agg(*(merge.alias(name) for name, merge in kind.merge.items()))
    if kind.signed:
        both = both.filter(pl.col(MANY) != 0)
    if kind.most is not None:
        best = both.sort(kind.order, descending=list(kind.descending), maintain_order=True)
        both = best.group_by(identity(keys), maintain_order=True).head(kind.most)
    return both


def merge_rows(frames: Sequence[pl.DataFrame], keys: Sequence[str], step: WindowedStep) -> pl.DataFrame:
    """Merge window rows from several tasks to one row for each window."""
    both = stacked(frames)
    sorted_ = _merge_by_sorting(both, keys, step)
    if sorted_ is not None:
        return sorted_
    ranks = ranked(both, picks_of(step))
    return ranks.fetched(grouped(ranks.frame, keys, step, [*merges(step, both), *ranks.made]))


def _merge_by_sorting(rows: pl.DataFrame, keys: Sequence[str], step: WindowedStep) -> pl.DataFrame | None:
    """Merge window rows by sorting integers; None where that does not apply.

    It applies to one integer key, one window, and accumulators that fold (add, least, greatest).
    """
    if not is_worth_it(rows.height) or len(keys) != 1 or picks_of(step) or wide_sums(step, rows):
        return None
    if any(rows[name].min() != rows[name].max() for name in (START, END)):
        return None
    folds: list[tuple[str, Fold | None]] = [(NEW, "add"), (COUNTED, "add")]
    folds += [(part.name, part.fold) for part in plain_parts(step)]
    if needs_earliest(step):
        folds.append((EARLIEST, "least"))
    if step.pane_timestamp is not PaneTimestamp.END_OF_WINDOW:
        folds.append((TIME, "greatest" if step.pane_timestamp is PaneTimestamp.LATEST else "least"))
    known = [(name, fold) for name, fold in folds if fold is not None]
    if len(known) < len(folds):
        return None
    found = fold_by_key(rows, keys[0], known)
    if found is None:
        return None
    span = [rows[name].new_from_index(0, found.height) for name in (START, END)]
    return found.insert_column(1, span[0]).insert_column(2, span[1])


def combined(placed: pl.DataFrame | None, keys: Sequence[str], step: WindowedStep) -> Combined | None:
    """Combine elements, if there are any."""
    return combine(placed, keys, step) if placed is not None and placed.height else None


def concat_unmerged(found: Sequence[Combined]) -> Combined | None:
    """Concatenate without merging rows of one window. Adding them to the stored state merges them all at once."""
    if len(found) < 2:
        return found[0] if found else None
    names = dict.fromkeys(name for each in found for name in each.items)
    items = {
        name: pl.concat([each.items[name] for each in found if name in each.items], how="diagonal_relaxed")
        for name in names
    }
    return Combined(stacked([each.rows for each in found]), items, repeats=True)


def merged(found: Sequence[Combined | None], keys: Sequence[str], step: WindowedStep) -> Combined | None:
    """Merge accumulators from several places to one row for each identity."""
    given = [each for each in found if each is not None]
    if not given or (len(given) == 1 and not given[0].repeats):
        return given[0] if given else None
    items = {}
    for name, kind in items_of(step).items():
        frames = [each.items[name] for each in given if name in each.items]
        if frames:
            items[name] = together(frames, keys, kind)
    return Combined(merge_rows([each.rows for each in given], keys, step), items)


def merges(step: WindowedStep, frame: pl.DataFrame) -> Sequence[pl.Expr]:
    """Return the expressions that merge rows of one window in this frame. Picks are not among them: they are ranked."""
    return _merges(step, wide_sums(step, frame))


@cache
def sums_of(step: WindowedStep) -> tuple[str, ...]:
    """Return the names of the sums, which may have a carry."""
    return tuple(part.name for part in parts_of(step) if part.sums is not None)


def carries_in(step: WindowedStep, frame: pl.DataFrame) -> list[str]:
    """Return the carry columns of a frame."""
    return [carry for name in sums_of(step) if (carry := carry_of(name)) in frame.columns]


WideSums = frozenset[tuple[str, pl.DataType, bool]]
"""The sums to merge in 128 bits: name, type, and whether they have carries."""


def wide_sums(step: WindowedStep, frame: pl.DataFrame) -> WideSums:
    """Return the sums in this frame that could overflow, or have overflowed before."""
    found = ((name, frame[name], carry_of(name) in frame.columns) for name in sums_of(step))
    return frozenset((name, each.dtype, carried) for name, each, carried in found if carried or at_risk(each))


def merged_parts(parts: Sequence[Part], wide: WideSums) -> list[pl.Expr]:
    """Return the expressions that merge accumulators: one column each, or a sum and its carry."""
    known = {name: (kind, carried) for name, kind, carried in wide}
    made: list[pl.Expr] = []
    for part in parts:
        if part.name in known:
            kind, carried = known[part.name]
            made += overflow.sums(overflow.units(pl.col(part.name)), part.name, kind, carried=carried, stored=True)
        else:
            made.append(part.merge.alias(part.name))
    return made


@cache
def _merges(step: WindowedStep, wide: WideSums) -> Sequence[pl.Expr]:
    made = [pl.col(NEW).sum(), pl.col(COUNTED).sum(), *merged_parts(plain_parts(step), wide)]
    if needs_earliest(step):
        made.append(pl.col(EARLIEST).min())
    if step.pane_timestamp is not PaneTimestamp.END_OF_WINDOW:
        latest = step.pane_timestamp is PaneTimestamp.LATEST
        made.append(pl.col(TIME).max() if latest else pl.col(TIME).min())
    return made


def with_values(
    windows: pl.DataFrame, items: Frames, keys: Sequence[str], step: WindowedStep, before: str
) -> pl.DataFrame:
    """Add the current value of each aggregate to window rows, in columns named `before` + aggregate name."""
    layouts = _layouts(step)
    known = windows.with_columns(
        _row_value(kept, windows).alias(before + name) for name, kept in layouts.items() if isinstance(kept, InRow)
    )
    for name, kept in layouts.items():
        if isinstance(kept, InItems):
            known = _with_item_value(known, items.get(kept.items.name), keys, kept, before + name)
    return known


def _row_value(kept: InRow, windows: pl.DataFrame) -> pl.Expr:
    (first, *_) = kept.parts
    if first.sums is None:
        return kept.value
    return overflow.value(first.name, windows.schema[first.name], windows.columns)


def _with_item_value(
    windows: pl.DataFrame, items: pl.DataFrame | None, keys: Sequence[str], kept: InItems, name: str
) -> pl.DataFrame:
    """Compute the value of one aggregate from its items, and join it to window rows."""
    if items is None or items.is_empty():
        kind = pl.List(pl.Null) if kept.empty == [] else None
        return windows.with_columns(pl.Series(name, [kept.empty] * windows.height, kind))
    if kept.items.signed:
        items = items.filter(pl.col(MANY) > 0)
        items = items[np.repeat(np.arange(items.height), items[MANY].to_numpy())]
    found = items.group_by(identity(keys)).agg(kept.value.alias(name))
    known = windows.join(found, on=identity(keys), how="left", nulls_equal=True, maintain_order="left")
    if kept.finish is not None:
        return _finish_in_user_code(known, kept, name)
    return known if kept.empty is None else known.with_columns(_filled(known[name], kept.empty))


def _finish_in_user_code(known: pl.DataFrame, kept: InItems, name: str) -> pl.DataFrame:
    """Compute values by the user's code. Where it raises, the value is null and PROBLEM has the error."""
    results, problems = list[Any](), list[str | None]()
    for each in python_values(known[name]):
        try:
            results.append(kept.empty if each is None or kept.finish is None else kept.finish(each))
            problems.append(None)
        except ANY_FAILURE as problem:
            results.append(None)
            problems.append(f"{type(problem).__name__}: {problem}")
    values = known.with_columns(pl.Series(name, results, strict=False))
    if not any(problems):
        return values
    both = [*([PROBLEM] if PROBLEM in known.columns else []), pl.Series("@new_problem", problems, pl.String)]
    return values.with_columns(pl.coalesce(both).alias(PROBLEM))


def _filled(values: pl.Series, empty: object) -> pl.Series:
    """Replace null, the value of windows without items, by the aggregate's value of no elements."""
    if not values.null_count():
        return values
    fill = pl.lit([], values.dtype) if empty == [] else pl.lit(empty, values.dtype)
    return values.to_frame().select(pl.col(values.name).fill_null(fill)).to_series()
