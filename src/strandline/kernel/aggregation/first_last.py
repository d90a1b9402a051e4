"""One element out of a window's: its first or last, or the one with the least or the most of something.

It is kept in columns of its window's row: the value, the position, and what it goes by. Rows are ranked once by the
order that decides; the least rank of each window is then a number like others, and what it stands for is fetched.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.kernel.blocks.block import AT, OFFSET, PARTITION

_BITS: Final = 63
_PLACES: Final = 1 << 16
"""So many names of partitions are sorted as numbers."""

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Pick:
    """The first value by an order: of another column, then of position; or the last by position."""

    name: str
    column: str
    by: str | None = None
    most: bool = False
    """Whether the most of `by` comes first."""
    last: bool = False

    @property
    def kept(self) -> str:
        return f"@{self.name}"

    @property
    def columns(self) -> dict[str, str]:
        """What is kept, each with the column of elements that it comes from."""
        position = {f"{self.kept}.at": AT, f"{self.kept}.partition": PARTITION, f"{self.kept}.offset": OFFSET}
        return {self.kept: self.column, **({f"{self.kept}.by": self.by} if self.by else {}), **position}


@dataclass(frozen=True, slots=True)
class Ranked:
    """A frame with ranks beside its rows, how they are grouped, and the way back from ranks to what is kept."""

    frame: pl.DataFrame
    made: tuple[pl.Expr, ...]
    _fetch: Callable[[pl.DataFrame], pl.DataFrame]

    def fetched(self, groups: pl.DataFrame) -> pl.DataFrame:
        """Groups with what their least ranks stand for, in place of these."""
        return self._fetch(groups)


@dataclass(frozen=True, slots=True, eq=False)
class _Order:
    """Rows by what decides among them, and the place of each in that."""

    keys: tuple[pl.Series, ...]
    down: tuple[bool, ...]
    rows: Places
    rank: pl.Series

    def is_that_of(self, keys: Sequence[pl.Series], down: tuple[bool, ...]) -> bool:
        return self.down == down and all(mine.equals(its) for mine, its in zip(self.keys, keys, strict=True))


def ranked(frame: pl.DataFrame, picks: Sequence[Pick], *, elements: bool = False) -> Ranked:
    """Rows of windows, or elements, ranked for each pick; those among which the same decides share their ranks."""
    if not picks:
        return Ranked(frame, (), lambda groups: groups)
    orders: list[_Order] = []
    ranks: dict[str, pl.Series] = {}
    chosen: list[tuple[Pick, _Order, str]] = []
    for pick in picks:
        at = pick.columns if elements else {name: name for name in pick.columns}
        value, *keys = (frame[name] for name in at.values())
        down = tuple([pick.most] * bool(pick.by) + [pick.last] * 3)
        order = next((each for each in orders if each.is_that_of(keys, down)), None)
        if order is None:
            orders.append(order := _order(tuple(keys), down))
        none = value.is_null() | (keys[0].is_null() if pick.by else False)
        some = bool(none.any())
        name = f"@rank.{orders.index(order)}{f'.{pick.name}' if some else ''}"
        if name not in ranks:
            ranks[name] = (_without(order.rank, none) if some else order.rank).alias(name)
        chosen.append((pick, order, name))

    def fetch(groups: pl.DataFrame) -> pl.DataFrame:
        found: dict[tuple[str, str], pl.Series] = {}
        told: list[pl.Series] = []
        for pick, order, name in chosen:
            winners = pl.Series(order.rows).gather(groups[name])
            for kept, source in pick.columns.items():
                own = (name, source if elements else kept)
                if own not in found:
                    found[own] = frame[own[1]].gather(winners)
                told.append(found[own].alias(kept))
        return groups.drop(ranks).with_columns(told)

    return Ranked(frame.with_columns(ranks.values()), tuple(pl.col(name).min() for name in ranks), fetch)


def _without(ranks: pl.Series, none: pl.Series) -> pl.Series:
    return pl.select(pl.when(~none).then(ranks)).to_series()


def _order(keys: tuple[pl.Series, ...], down: tuple[bool, ...]) -> _Order:
    *before, at, partition, offset = keys
    position = _as_one(at, partition, offset)
    deciding = [*keys] if position is None else [*before, position]
    # Of what one record was made into all has one position: what came first is first, whatever the order.
    rows: Places
    if position is not None and not before:
        numbers = position.fill_null(0).to_numpy()
        rows = np.argsort(-numbers if down[-1] else numbers, kind="stable")
    else:
        frame = pl.DataFrame([each.alias(str(number)) for number, each in enumerate(deciding)])
        found = pl.arg_sort_by(frame.columns, descending=list(down[: frame.width]), maintain_order=True)
        rows = frame.select(found).to_series().to_numpy().astype(np.int64)
    rank = np.empty(len(rows), np.uint32)
    rank[rows] = np.arange(len(rows), dtype=np.uint32)
    return _Order(keys, down, rows, pl.Series(rank))


def _as_one(at: pl.Series, partition: pl.Series, offset: pl.Series) -> pl.Series | None:
    """Positions as one number each, in the same order, since to sort three takes long; None if they do not fit."""
    names = partition.drop_nulls().unique().sort()
    if not names.len() or names.len() > _PLACES:
        return None
    lows, spans = zip(*(_span(each) for each in (at, offset)), strict=True)
    bits = [span.bit_length() for span in (*spans, names.len())]
    if sum(bits) > _BITS:
        return None
    place = partition.cast(pl.Enum(names)).to_physical().cast(pl.Int64)
    found: pl.Series = ((at - lows[0]) * (1 << bits[2]) + place) * (1 << bits[1]) + (offset - lows[1])
    return found


def _span(values: pl.Series) -> tuple[int, int]:
    low: Any = values.min()
    high: Any = values.max()
    return (int(low), int(high) - int(low)) if low is not None else (0, 0)
