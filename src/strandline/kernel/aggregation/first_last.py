"""Pick one element per window: first, last, arg_min or arg_max.

The window row keeps the picked value, its position, and the `by` value. All rows are ranked once by the deciding order.
The least rank of each window is then an ordinary minimum, and the columns of the picked row are gathered by it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.kernel.blocks.block import AT, OFFSET, PARTITION

_BITS: Final = 63
_MAX_PARTITIONS: Final = 1 << 16
"""Partition names are encoded as integers for sorting up to this many."""

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Pick:
    """First value by an order: by column `by`, then by position; or the last value by position."""

    name: str
    column: str
    by: str | None = None
    most: bool = False
    """Whether the greatest `by` comes first."""
    last: bool = False

    @property
    def kept(self) -> str:
        return f"@{self.name}"

    @property
    def columns(self) -> dict[str, str]:
        """Return the columns of the window row, each with the element column it comes from."""
        position = {f"{self.kept}.at": AT, f"{self.kept}.partition": PARTITION, f"{self.kept}.offset": OFFSET}
        return {self.kept: self.column, **({f"{self.kept}.by": self.by} if self.by else {}), **position}


@dataclass(frozen=True, slots=True)
class Ranked:
    """Frame with rank columns, the expressions that aggregate them, and the function that resolves ranks to columns."""

    frame: pl.DataFrame
    made: tuple[pl.Expr, ...]
    _fetch: Callable[[pl.DataFrame], pl.DataFrame]

    def fetched(self, groups: pl.DataFrame) -> pl.DataFrame:
        """Replace the least ranks of groups by the columns of the picked rows."""
        return self._fetch(groups)


@dataclass(frozen=True, slots=True, eq=False)
class _Order:
    """Rows in their deciding order, and the rank of each row."""

    keys: tuple[pl.Series, ...]
    down: tuple[bool, ...]
    rows: Places
    rank: pl.Series

    def is_by(self, keys: Sequence[pl.Series], down: tuple[bool, ...]) -> bool:
        return self.down == down and all(one.equals(other) for one, other in zip(self.keys, keys, strict=True))


def ranked(frame: pl.DataFrame, picks: Sequence[Pick], *, elements: bool = False) -> Ranked:
    """Rank window rows or elements for each pick. Picks with the same deciding columns share one rank column."""
    if not picks:
        return Ranked(frame, (), lambda groups: groups)
    orders: list[_Order] = []
    ranks: dict[str, pl.Series] = {}
    chosen: list[tuple[Pick, _Order, str]] = []
    for pick in picks:
        at = pick.columns if elements else {name: name for name in pick.columns}
        value, *keys = (frame[name] for name in at.values())
        down = tuple([pick.most] * bool(pick.by) + [pick.last] * 3)
        order = next((each for each in orders if each.is_by(keys, down)), None)
        if order is None:
            orders.append(order := _order(tuple(keys), down))
        missing = value.is_null() | (keys[0].is_null() if pick.by else False)
        any_missing = bool(missing.any())
        name = f"@rank.{orders.index(order)}{f'.{pick.name}' if any_missing else ''}"
        if name not in ranks:
            ranks[name] = (_null_where(order.rank, missing) if any_missing else order.rank).alias(name)
        chosen.append((pick, order, name))

    def fetch(groups: pl.DataFrame) -> pl.DataFrame:
        found: dict[tuple[str, str], pl.Series] = {}
        columns: list[pl.Series] = []
        for pick, order, name in chosen:
            winners = pl.Series(order.rows).gather(groups[name])
            for kept, source in pick.columns.items():
                own = (name, source if elements else kept)
                if own not in found:
                    found[own] = frame[own[1]].gather(winners)
                columns.append(found[own].alias(kept))
        return groups.drop(ranks).with_columns(columns)

    return Ranked(frame.with_columns(ranks.values()), tuple(pl.col(name).min() for name in ranks), fetch)


def _null_where(ranks: pl.Series, missing: pl.Series) -> pl.Series:
    return pl.select(pl.when(~missing).then(ranks)).to_series()


def _order(keys: tuple[pl.Series, ...], down: tuple[bool, ...]) -> _Order:
    *before, at, partition, offset = keys
    position = _packed(at, partition, offset)
    deciding = [*keys] if position is None else [*before, position]
    # Rows made from one record share its position. A stable sort keeps their order of arrival in either direction.
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


def _packed(at: pl.Series, partition: pl.Series, offset: pl.Series) -> pl.Series | None:
    """Pack each position into one integer of the same order, which sorts faster; None if it overflows."""
    names = partition.drop_nulls().unique().sort()
    if not names.len() or names.len() > _MAX_PARTITIONS:
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
