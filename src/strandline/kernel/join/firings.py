"""Join the rows of windows that fire, and decide which rows a firing emits.

A firing has all rows of its window. It may replace earlier firings: the last one of the same window, and those of
sessions that were merged into it. The rows that an earlier firing had are those in its bounds that arrived up to its
newest batch. A result of a firing `is` now, `was` in an earlier firing, or both; the accumulation mode decides.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from strandline.kernel.blocks.block import END, OWN, START
from strandline.kernel.blocks.small_frames import only
from strandline.kernel.expressions import to_expr
from strandline.kernel.join.pairs import Longs
from strandline.kernel.join.window_rows import Bounds, Members, bounds_of
from strandline.kernel.join.window_store import BATCH, Flags
from strandline.kernel.window.panes import FIRST, INDEX, LAST, NONSPECULATIVE, RETRACTION, TIMESTAMP, TIMING
from strandline.model.joins import LEFT, RIGHT, How
from strandline.model.panes import Accumulation
from strandline.model.window_join import WindowJoin

PANE: Final = (START, END, TIMING, INDEX, NONSPECULATIVE, FIRST, LAST, TIMESTAMP, RETRACTION)
"""Columns of a firing that its rows have."""
_MOST: Final = 1 << 21
"""Candidate pairs that are formed at once."""


@dataclass(frozen=True, slots=True, eq=False)
class Firings:
    """The windows that fire in a batch, and the earlier firings that they replace."""

    windows: pl.DataFrame
    bounds: Bounds
    has_null_key: Flags
    replaced: pl.DataFrame
    """Earlier firings, by firing and start."""
    owners: Longs
    """The firing that replaces each earlier one."""
    moved: Flags
    """Whether an earlier firing has other bounds than the one that replaces it."""


def firings_of(panes: pl.DataFrame, keys: Sequence[str]) -> Firings:
    """Split panes into firings and the earlier firings before each, which it replaces."""
    is_old = panes[RETRACTION].to_numpy()
    number = np.cumsum(~is_old) - ~is_old
    windows = panes if not is_old.any() else panes.filter(pl.Series(~is_old))
    null = windows.select(pl.any_horizontal(pl.col(name).is_null() for name in keys).alias("null"))["null"].to_numpy()
    replaced, owners = panes.clear(), np.zeros(0, np.int64)
    if is_old.any():
        replaced, owners = panes.filter(pl.Series(is_old)), number[is_old]
        order = np.lexsort((replaced[START].to_numpy(), owners))
        replaced, owners = replaced[order], owners[order]
    same = [replaced[name].to_numpy() == windows[name].to_numpy()[owners] for name in (START, END)]
    return Firings(windows, bounds_of(windows, keys), null, replaced, owners, ~(same[0] & same[1]))


@dataclass(slots=True, eq=False)
class _Side:
    """The members of one side, the earlier firing that each was in, and whether each has a partner."""

    members: Members
    replaced: Longs
    """Earlier firing of each member; -1 for none."""
    matched: Flags
    was_matched: Flags
    """Whether it had a partner in its earlier firing."""


class FiredJoin:
    """Joins the windows that fire in one batch."""

    def __init__(self, definition: WindowJoin, keys: Sequence[str], firings: Firings) -> None:
        self._definition = definition
        self._keys = keys
        self._firings = firings
        self._retractions: list[pl.DataFrame] = []
        self._rows: list[pl.DataFrame] = []

    def join(self, left: Members, right: Members) -> list[pl.DataFrame]:
        """Return the rows that the firings emit, retractions first."""
        one, other = self._side(left), self._side(right)
        for lefts, rights in self._candidates(left, right):
            self._pair(one, other, lefts, rights)
        if self._definition.how is How.SEMI:
            self._emit_alone(one, one.matched, one.was_matched)
        for role, side in ((LEFT, one), (RIGHT, other)):
            if self._definition.pads(role):
                self._emit_alone(side, ~side.matched, (side.replaced >= 0) & ~side.was_matched)
        return [*self._retractions, *self._rows]

    def _side(self, members: Members) -> _Side:
        none = np.zeros(len(members.windows), np.bool_)
        return _Side(members, self._earlier_firings(members), none, none.copy())

    def _earlier_firings(self, members: Members) -> Longs:
        """Return the earlier firing that had each member; -1 for none."""
        firings, count = self._firings, len(members.windows)
        if firings.replaced.is_empty() or not count:
            return np.full(count, -1)
        # The last earlier firing of the member's window that starts at or before the member.
        starts, ends = firings.replaced[START].to_numpy(), firings.replaced[END].to_numpy()
        times = members.times
        both = np.concatenate([starts, times])
        owners = np.concatenate([firings.owners, members.windows])
        is_member = np.arange(len(both)) >= len(starts)
        order = np.lexsort((is_member, both, owners))
        before = np.maximum.accumulate(np.where(order < len(starts), order, -1))
        found = np.empty(count, np.int64)
        found[order[is_member[order]] - len(starts)] = before[is_member[order]]
        known = np.maximum(found, 0)
        had = (found >= 0) & (firings.owners[known] == members.windows) & (times < ends[known])
        had &= members.batches <= firings.replaced[BATCH].to_numpy()[known]
        return np.where(had, found, -1)

    def _candidates(self, left: Members, right: Members) -> Iterator[tuple[Longs, Longs]]:
        """Yield the pairs of members of one window, not too many at once."""
        begin = np.searchsorted(right.windows, left.windows, "left")
        many = np.searchsorted(right.windows, left.windows, "right") - begin
        many[self._firings.has_null_key[left.windows]] = 0
        total = np.cumsum(many)
        first = 0
        while first < len(many):
            done = int(total[first - 1]) if first else 0
            last = max(int(np.searchsorted(total, done + _MOST, "right")), first + 1)
            here = many[first:last]
            if here.any():
                offsets = np.cumsum(here) - here
                rights = np.repeat(begin[first:last] - offsets, here) + np.arange(int(here.sum()))
                yield np.repeat(np.arange(first, last), here), rights
            first = last

    def _pair(self, left: _Side, right: _Side, lefts: Longs, rights: Longs) -> None:
        """Test candidate pairs, mark matched rows, and emit the pairs."""
        definition = self._definition
        pairs: pl.DataFrame | None = None
        if definition.condition is not None:
            pairs = self._columns(left.members.at(lefts), right.members.at(rights))
            true = self._is_true(pairs)
            lefts, rights, pairs = lefts[true], rights[true], pairs.filter(pl.Series(true))
        was = (left.replaced[lefts] >= 0) & (left.replaced[lefts] == right.replaced[rights])
        for side, members in ((left, lefts), (right, rights)):
            side.matched[members] = True
            side.was_matched[members[was]] = True
        if not definition.emits_pairs or not len(lefts):
            return
        new, old = self._emitted(left.replaced[lefts], np.ones(len(lefts), np.bool_), was)
        for chosen, is_old in ((old, True), (new, False)):
            if not chosen.any():
                continue
            numbers = left.replaced[lefts[chosen]] if is_old else left.members.windows[lefts[chosen]]
            if pairs is not None:
                rows = pairs if chosen.all() else pairs.filter(pl.Series(chosen))
            else:
                rows = self._columns(left.members.at(lefts[chosen]), right.members.at(rights[chosen]))
            self._add(rows, numbers, is_old=is_old)

    def _emit_alone(self, side: _Side, now: Flags, was: Flags) -> None:
        """Emit rows without the columns of the other side."""
        new, old = self._emitted(side.replaced, now, was)
        for chosen, is_old in ((old, True), (new, False)):
            if chosen.any():
                places = np.flatnonzero(chosen)
                numbers = side.replaced[places] if is_old else side.members.windows[places]
                rows = side.members.at(places)
                # The keys first, as in all other rows.
                self._add(only(rows, [*self._keys, *_others(rows, self._keys)]), numbers, is_old=is_old)

    def _emitted(self, replaced: Longs, now: Flags, was: Flags) -> tuple[Flags, Flags]:
        """Return which results are emitted, and which are retracted."""
        none = np.zeros(len(now), np.bool_)
        match self._definition.accumulation:
            case Accumulation.ACCUMULATING:
                return now, none
            case Accumulation.DISCARDING:
                return now & ~was, none
            case Accumulation.RETRACTING:
                if not was.any():
                    return now, none
                moved = was & self._firings.moved[np.maximum(replaced, 0)]
                return now & (~was | moved), was & (~now | moved)

    def _add(self, rows: pl.DataFrame, numbers: Longs, *, is_old: bool) -> None:
        firings = self._firings.replaced if is_old else self._firings.windows
        (self._retractions if is_old else self._rows).append(rows.hstack(only(firings, PANE)[numbers]))

    def _columns(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        """Return pairs with the columns of both sides."""
        own = only(left, [*self._keys, *_others(left, self._keys)])
        return own.hstack(only(right, _others(right, self._keys)).get_columns())

    def _is_true(self, pairs: pl.DataFrame) -> Flags:
        condition = self._definition.condition
        assert condition is not None  # noqa: S101 - asked only then
        known = {*pairs.columns}
        test = to_expr(condition.tree, lambda name: pl.col(name.name) if name.name in known else pl.lit(None))
        found = pairs.select(test.cast(pl.Boolean).alias("true"))["true"]
        true: Flags = found.fill_null(False).to_numpy()
        return true


def _others(rows: pl.DataFrame, keys: Sequence[str]) -> list[str]:
    """Return the user columns besides the keys."""
    return [name for name in rows.columns if not name.startswith(OWN) and name not in keys]
