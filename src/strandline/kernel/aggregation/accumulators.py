"""What windows hold: columns in the row of each window, and frames of items beside them; combined, merged, told.

Every function here works on identities (key, start, end), whatever kind of window they belong to.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal

import numpy as np
import polars as pl

from strandline.kernel.aggregation import retractable_aggregates
from strandline.kernel.aggregation.aggregates import MANY, InItems, InRow, Items, Part, columns_of
from strandline.kernel.aggregation.first_last import Pick, ranked
from strandline.kernel.aggregation.overflow import at_risk, total
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
from strandline.kernel.blocks.small_frames import only, stacked
from strandline.kernel.blocks.sorting import Fold, is_worth_it, put_together
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
"""The items that are the elements themselves, kept where an evictor must look at each."""
TURN = "@turn"
"""The number of the batch that brought an element: with its position, its place in the order of arrival."""

_WORTH_IT: Final = 10_000
_FEW: Final = 64
_EACH: Final = 10_000
"""So many rows of a window, one with another, are grouped by themselves in less time than all at once."""


@dataclass(frozen=True, slots=True)
class Combined:
    """Elements put together: a row for each window, and items."""

    rows: pl.DataFrame
    items: Frames
    repeats: bool = False
    """Whether a window may have several rows, not put together yet."""


@cache
def parts_of(ask: WindowedStep) -> tuple[Part, ...]:
    """The columns kept in the rows of windows."""
    return tuple(part for _, kept in _kept(ask) if isinstance(kept, InRow) for part in kept.parts)


@cache
def picks_of(ask: WindowedStep) -> tuple[Pick, ...]:
    """Those among them that are columns of one element."""
    return tuple(kept.pick for _, kept in _kept(ask) if isinstance(kept, InRow) and kept.pick is not None)


@cache
def sets_of(ask: WindowedStep) -> tuple[str, ...]:
    """The names of the values that are counted by what is different."""
    return tuple(name for name, kept in _kept(ask) if isinstance(kept, InRow) and kept.is_set)


@cache
def plain_parts(ask: WindowedStep) -> tuple[Part, ...]:
    """The others: each is made and merged by itself."""
    return tuple(part for _, kept in _kept(ask) if isinstance(kept, InRow) and kept.pick is None for part in kept.parts)


@cache
def items_of(ask: WindowedStep) -> Mapping[str, Items]:
    """The items kept beside them."""
    if ask.evictor is not None:
        return {ELEMENTS: _elements(ask)}
    return {kept.items.name: kept.items for _, kept in _kept(ask) if isinstance(kept, InItems)}


def _kept(ask: WindowedStep) -> list[tuple[str, InRow | InItems]]:
    if ask.evictor is not None:
        return []
    return [*_ways(ask).items()]


@cache
def _ways(ask: WindowedStep) -> Mapping[str, InRow | InItems]:
    """How each aggregate is kept."""
    ways = retractable_aggregates.columns_of if ask.signed else columns_of
    return {name: ways(name, aggregate) for name, aggregate in ask.aggregates}


def _elements(ask: WindowedStep) -> Items:
    """Every element with the columns that an aggregate or the evictor reads."""
    needed = {AT, PARTITION, OFFSET, TURN} | ({SIGN} if ask.signed else set())
    needed |= {name for _, each in ask.aggregates for name in read_by(each)}
    if isinstance(ask.evictor, KeepDelta):
        needed |= {name.name for name in names_of(ask.evictor.distance.tree)}
    return Items(ELEMENTS, {name: pl.col(name) for name in sorted(needed)}, pl.lit(True), ())


def identity(keys: Sequence[str]) -> list[str]:
    """What tells windows apart."""
    return [*keys, START, END]


def combine(placed: pl.DataFrame, keys: Sequence[str], ask: WindowedStep, some: pl.Series | None = None) -> Combined:
    """Elements, each beside one of its windows, as one row for each window, and items; if told so, only some."""
    many = pl.len().cast(pl.Int64)
    counted = pl.col(NEWEST).sum().cast(pl.Int64) if NEWEST in placed.columns else many
    made = [many.alias(NEW), counted.alias(COUNTED)]
    made += [_partial(part, placed, ask).alias(part.name) for part in plain_parts(ask)]
    if needs_earliest(ask):
        made.append(pl.col(AT).min().alias(EARLIEST))
    if ask.pane_timestamp is not PaneTimestamp.END_OF_WINDOW:
        made.append(_combined_time(placed, ask).alias(TIME))
    # In any order, which is faster: a window has one row here, and what is kept or told of it is sorted later.
    picks = picks_of(ask)
    read = dict.fromkeys([*_read(keys, made), *(name for pick in picks for name in pick.columns.values())])
    ranks = ranked(_of(only(placed, [*read]), some), picks, elements=True)
    rows = ranks.fetched(grouped(ranks.frame, keys, ask, [*made, *ranks.made]))
    return Combined(rows, {name: _make(_of(placed, some), keys, kind) for name, kind in items_of(ask).items()})


def _of(frame: pl.DataFrame, some: pl.Series | None) -> pl.DataFrame:
    return frame if some is None else frame.filter(some)


def _read(keys: Sequence[str], made: Sequence[pl.Expr]) -> list[str]:
    """The columns that are looked at: to copy the others costs as much."""
    return list(dict.fromkeys([*identity(keys), *(name for each in made for name in each.meta.root_names())]))


def _partial(part: Part, placed: pl.DataFrame, ask: WindowedStep) -> pl.Expr:
    if part.sums is None or not at_risk(placed[part.sums]):
        return part.partial
    signs = pl.col(SIGN).cast(pl.Int128) if ask.signed else pl.lit(1, pl.Int128)
    return total(pl.col(part.sums).cast(pl.Int128) * signs)


def grouped(frame: pl.DataFrame, keys: Sequence[str], ask: WindowedStep, made: Sequence[pl.Expr]) -> pl.DataFrame:
    """One row for each identity: window by window where these are few and large, since keys alone group faster."""
    if frame.height < _WORTH_IT:
        return frame.group_by(identity(keys)).agg(*made)
    few = frame.select(_read(keys, made))
    engine = _engine(few, keys)
    bound = None if span_of(ask.window) is None else _told_apart_by(frame, ask)
    if bound is None:
        return few.lazy().group_by(identity(keys)).agg(*made).collect(engine=engine)
    pieces = few.partition_by(bound, include_key=True)
    found = []
    for piece in pieces:
        span = [pl.lit(piece[name][0], pl.Int64).alias(name) for name in (START, END)]
        groups = piece.lazy().group_by(keys)
        found.append(groups.agg(*made).select(*keys, *span, pl.exclude(keys)))
    return pl.concat(pl.collect_all(found, engine=engine))


def _engine(frame: pl.DataFrame, keys: Sequence[str]) -> Literal["streaming", "in-memory"]:
    """Polars' streaming engine groups many keys in half the time, but adds in any order: integers do not mind."""
    plain = all(kind.is_integer() or (name in keys and kind == pl.String) for name, kind in frame.schema.items())
    return "streaming" if plain else "in-memory"


def _told_apart_by(frame: pl.DataFrame, ask: WindowedStep) -> list[str] | None:
    """The bounds by which windows are told apart; None if there are many, or little in each."""
    few = min(_FEW, frame.height // _EACH)
    if isinstance(ask.window, Tumbling):
        first, last = frame.select(pl.col(START).min(), pl.col(END).max()).row(0)
        if first > NEVER and last < FOREVER and last - first <= few * ask.window.size.ms:
            return [START]
    starts, ends = frame[START].n_unique(), frame[END].n_unique()
    if max(starts, ends) > few:
        return None
    # Windows that begin together end together, but for those that grow step by step, and at the ends of time.
    return [START] if starts == ends else [START, END]


def needs_earliest(ask: WindowedStep) -> bool:
    """Whether the trigger goes by the earliest new element."""
    return reads_event_time(ask.trigger)


def _combined_time(placed: pl.DataFrame, ask: WindowedStep) -> pl.Expr:
    """One time for many; where it was looked at which of them count, those are in TIME already."""
    times = pl.col(TIME if TIME in placed.columns else AT)
    return times.max() if ask.pane_timestamp is PaneTimestamp.LATEST else times.min()


def _make(placed: pl.DataFrame, keys: Sequence[str], kind: Items) -> pl.DataFrame:
    made = placed.select(*identity(keys), *(value.alias(f"{name}") for name, value in _apart(kind, keys).items()))
    return together([made.filter(kind.keep)], keys, kind)


def _apart(kind: Items, keys: Sequence[str]) -> dict[str, pl.Expr]:
    """A key that is also an item's column is there already."""
    return {name: value for name, value in kind.made.items() if name not in keys}


def together(frames: Sequence[pl.DataFrame], keys: Sequence[str], kind: Items) -> pl.DataFrame:
    """Items from several places as one frame, merged and cut as their kind says."""
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


def merge_rows(frames: Sequence[pl.DataFrame], keys: Sequence[str], ask: WindowedStep) -> pl.DataFrame:
    """Rows of the same windows from several tasks, as one for each."""
    both = stacked(frames)
    sorted_ = _by_sorting(both, keys, ask)
    if sorted_ is not None:
        return sorted_
    ranks = ranked(both, picks_of(ask))
    return ranks.fetched(grouped(ranks.frame, keys, ask, [*merges(ask, both), *ranks.made]))


def _by_sorting(rows: pl.DataFrame, keys: Sequence[str], ask: WindowedStep) -> pl.DataFrame | None:
    """The same in order of their keys, where these are integers, the windows one and what is kept adds up."""
    if not is_worth_it(rows.height) or len(keys) != 1 or picks_of(ask) or wide_sums(ask, rows):
        return None
    if any(rows[name].min() != rows[name].max() for name in (START, END)):
        return None
    folds: list[tuple[str, Fold | None]] = [(NEW, "add"), (COUNTED, "add")]
    folds += [(part.name, part.fold) for part in plain_parts(ask)]
    if needs_earliest(ask):
        folds.append((EARLIEST, "least"))
    if ask.pane_timestamp is not PaneTimestamp.END_OF_WINDOW:
        folds.append((TIME, "greatest" if ask.pane_timestamp is PaneTimestamp.LATEST else "least"))
    known = [(name, fold) for name, fold in folds if fold is not None]
    if len(known) < len(folds):
        return None
    found = put_together(rows, keys[0], known)
    if found is None:
        return None
    span = [rows[name].new_from_index(0, found.height) for name in (START, END)]
    return found.insert_column(1, span[0]).insert_column(2, span[1])


def combined(placed: pl.DataFrame | None, keys: Sequence[str], ask: WindowedStep) -> Combined | None:
    """Elements put together, if there are any."""
    return combine(placed, keys, ask) if placed is not None and placed.height else None


def side_by_side(found: Sequence[Combined]) -> Combined | None:
    """Several as one, windows not yet put together: whoever adds them to what is kept does so at once."""
    if len(found) < 2:
        return found[0] if found else None
    names = dict.fromkeys(name for each in found for name in each.items)
    items = {
        name: pl.concat([each.items[name] for each in found if name in each.items], how="diagonal_relaxed")
        for name in names
    }
    return Combined(stacked([each.rows for each in found]), items, repeats=True)


def merged(found: Sequence[Combined | None], keys: Sequence[str], ask: WindowedStep) -> Combined | None:
    """One row for each identity, whichever of several places it came from."""
    there = [each for each in found if each is not None]
    if not there or (len(there) == 1 and not there[0].repeats):
        return there[0] if there else None
    items = {}
    for name, kind in items_of(ask).items():
        frames = [each.items[name] for each in there if name in each.items]
        if frames:
            items[name] = together(frames, keys, kind)
    return Combined(merge_rows([each.rows for each in there], keys, ask), items)


def merges(ask: WindowedStep, frame: pl.DataFrame) -> Sequence[pl.Expr]:
    """How rows of one window become one, in this frame; but for picks, which are ranked."""
    return _merges(ask, frozenset(wide_sums(ask, frame)))


def wide_sums(ask: WindowedStep, frame: pl.DataFrame) -> set[str]:
    """The sums kept in this frame that could leave their range."""
    return {part.name for part in parts_of(ask) if part.sums is not None and at_risk(frame[part.name])}


@cache
def _merges(ask: WindowedStep, wide: frozenset[str]) -> Sequence[pl.Expr]:
    parts = plain_parts(ask)
    joined = [total(pl.col(part.name)) if part.name in wide else part.merge for part in parts]
    made = [
        pl.col(NEW).sum(),
        pl.col(COUNTED).sum(),
        *(merge.alias(part.name) for part, merge in zip(parts, joined, strict=True)),
    ]
    if needs_earliest(ask):
        made.append(pl.col(EARLIEST).min())
    if ask.pane_timestamp is not PaneTimestamp.END_OF_WINDOW:
        latest = ask.pane_timestamp is PaneTimestamp.LATEST
        made.append(pl.col(TIME).max() if latest else pl.col(TIME).min())
    return made


def with_values(
    windows: pl.DataFrame, items: Frames, keys: Sequence[str], ask: WindowedStep, before: str
) -> pl.DataFrame:
    """The windows with the values they would tell now, each under `before` and its name."""
    ways = _ways(ask)
    known = windows.with_columns(
        kept.value.alias(before + name) for name, kept in ways.items() if isinstance(kept, InRow)
    )
    for name, kept in ways.items():
        if isinstance(kept, InItems):
            known = _joined(known, items.get(kept.items.name), keys, kept, before + name)
    return known


def _joined(
    windows: pl.DataFrame, items: pl.DataFrame | None, keys: Sequence[str], kept: InItems, name: str
) -> pl.DataFrame:
    if items is None or items.is_empty():
        kind = pl.List(pl.Null) if kept.empty == [] else None
        return windows.with_columns(pl.Series(name, [kept.empty] * windows.height, kind))
    if kept.items.signed:
        items = items.filter(pl.col(MANY) > 0)
        items = items[np.repeat(np.arange(items.height), items[MANY].to_numpy())]
    found = items.group_by(identity(keys)).agg(kept.value.alias(name))
    known = windows.join(found, on=identity(keys), how="left", nulls_equal=True, maintain_order="left")
    if kept.told is not None:
        return _by_users_code(known, kept, name)
    return known if kept.empty is None else known.with_columns(_filled(known[name], kept.empty))


def _by_users_code(known: pl.DataFrame, kept: InItems, name: str) -> pl.DataFrame:
    """Values that a user's own code makes; where it raises, null, and beside it what it said."""
    told, problems = list[Any](), list[str | None]()
    for each in known[name].to_list():
        try:
            told.append(kept.empty if each is None or kept.told is None else kept.told(each))
            problems.append(None)
        except Exception as problem:  # noqa: BLE001 - a user's code may raise anything
            told.append(None)
            problems.append(f"{type(problem).__name__}: {problem}")
    values = known.with_columns(pl.Series(name, told, strict=False))
    if not any(problems):
        return values
    both = [*([PROBLEM] if PROBLEM in known.columns else []), pl.Series("@said", problems, pl.String)]
    return values.with_columns(pl.coalesce(both).alias(PROBLEM))


def _filled(values: pl.Series, empty: object) -> pl.Series:
    """Null where there are no items; told as what an aggregate says of nothing."""
    if not values.null_count():
        return values
    fill = pl.lit([], values.dtype) if empty == [] else pl.lit(empty, values.dtype)
    return values.to_frame().select(pl.col(values.name).fill_null(fill)).to_series()
