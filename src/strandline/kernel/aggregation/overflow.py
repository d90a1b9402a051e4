"""Add integers and decimals exactly: a sum that outgrows its column continues in a second column, its carry.

The total is `carry * base + sum`: the base is 2^62 for integers in 64 bits, and 10^38 units for decimals. While the
total is below the base, the carry is 0. A frame in which all carries are 0 has no carry column. One check per frame, by
the greatest value and the height, tells whether a sum could reach the base. Only then is it computed in 128 bits.
"""

from collections.abc import Collection, Iterable
from decimal import Decimal
from typing import Any, Final

import polars as pl

LIMIT: Final = 1 << 62
"""Base of integers. In state that releases before 0.3 wrote, this value marks a sum that has overflowed for good."""
DIGITS: Final = 38
"""Digits of a decimal in 128 bits."""
_HALF_OF_INTEGER: Final = 1 << 31
_HALF_OF_DECIMAL: Final = 10 ** (DIGITS // 2)
_FITS: Final = (-2, 1)
"""Carries with which an integer still fits into 64 bits."""


def carry_of(name: str) -> str:
    """Return the name of the carry column of a sum."""
    return f"{name}.carry"


def at_risk(values: pl.Series) -> bool:
    """Tell whether a sum over any of these values could reach the base."""
    kind = values.dtype
    if not (kind.is_integer() or kind.is_decimal()) or values.is_empty():
        return False
    physical = values.to_physical()
    least: Any = physical.min()
    most: Any = physical.max()
    return least is not None and max(-least, most) * len(values) >= _half(kind) ** 2


def sums(
    values: pl.Expr, name: str, kind: pl.DataType, *, carried: bool = False, stored: bool = False
) -> list[pl.Expr]:
    """Return the sum of values of a type and its carry, computed in 128 bits.

    `carried` adds the carries of the values; `stored` looks for the mark of overflow that older releases stored.
    """
    half = _half(kind)
    high, low = (part.sum() for part in (values // _wide(half), values % _wide(half)))
    carries = pl.col(carry_of(name)).cast(pl.Int128).sum() if carried else _wide(0)
    upper = high + low // _wide(half)
    carry = carries + upper // _wide(half)
    rest = (upper % _wide(half)) * _wide(half) + low % _wide(half)
    # The rest is never negative. A total just below zero has no carry.
    is_small = (carry == -1) & (rest > 0)
    total = _narrow(pl.when(is_small).then(rest - _wide(half * half)).otherwise(rest), kind)
    carry = pl.when(is_small).then(_wide(0)).otherwise(carry.clip(-LIMIT, LIMIT)).cast(pl.Int64)
    if stored and kind == pl.Int64:
        overflowed = (pl.col(name) == LIMIT).any()
        total = pl.when(overflowed).then(pl.lit(LIMIT, pl.Int64)).otherwise(total)
        carry = pl.when(overflowed).then(pl.lit(0, pl.Int64)).otherwise(carry)
    return [total.alias(name), carry.alias(carry_of(name))]


def units(values: pl.Expr) -> pl.Expr:
    """Return integers or decimals as numbers of 128 bits; decimals in units of their last digit."""
    return values.to_physical().cast(pl.Int128)


def without_empty_carries(frame: pl.DataFrame, names: Iterable[str]) -> pl.DataFrame:
    """Drop the carry columns of these sums in which every carry is 0."""
    empty = [carry for name in names if (carry := carry_of(name)) in frame.columns and not (frame[carry] != 0).any()]
    return frame.drop(empty) if empty else frame


def value(name: str, kind: pl.DataType, columns: Collection[str]) -> pl.Expr:
    """Return a sum, or null where it has more than 64 bits or 38 digits. Float sums become infinite instead."""
    total, carry = pl.col(name), pl.col(carry_of(name)).fill_null(0)
    has_carry = carry_of(name) in columns
    if kind.is_decimal():
        return pl.when(carry == 0).then(total) if has_carry else total
    if not kind.is_integer():
        return total
    fits = total != LIMIT
    if not has_carry:
        return pl.when(fits).then(total)
    return pl.when(fits & carry.is_between(*_FITS)).then(carry * LIMIT + total)


def _half(kind: pl.DataType) -> int:
    """Return the square root of the base."""
    return _HALF_OF_DECIMAL if kind.is_decimal() else _HALF_OF_INTEGER


def _wide(number: int) -> pl.Expr:
    return pl.lit(number, pl.Int128)


def _narrow(number: pl.Expr, kind: pl.DataType) -> pl.Expr:
    """Return 128-bit units as the type of a sum: 64-bit integers, or decimals of 38 digits with the same scale."""
    if not isinstance(kind, pl.Decimal):
        return number.cast(pl.Int64)
    unit = pl.lit(Decimal(1).scaleb(-kind.scale), pl.Decimal(DIGITS, kind.scale))
    return (number.cast(pl.Decimal(DIGITS, 0)) * unit).cast(pl.Decimal(DIGITS, kind.scale))
