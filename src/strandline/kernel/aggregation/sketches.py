"""Compute sketches over columns: HyperLogLog registers for distinct counts, buckets for quantiles."""

import json
import math
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import polars as pl

from strandline.kernel.blocks.nan_safe_join import join_nan_safe
from strandline.kernel.blocks.python_values import python_values, text_in_json

_DROPPED: Final = np.uint64(64 - 12 - 6)
"""Bits of a double below the sign, the exponent and six bits of the mantissa."""
_ALPHA: Final = {16: 0.673, 32: 0.697, 64: 0.709}


def bucket(values: pl.Expr) -> pl.Expr:
    """Return the middle of the bucket of each number; null for null and NaN."""
    return values.cast(pl.Float64).map_batches(_buckets, return_dtype=pl.Float64)


def _buckets(values: pl.Series) -> pl.Series:
    numbers = values.to_numpy().astype(np.float64) + 0.0
    bits = np.ascontiguousarray(numbers).view(np.uint64)
    middle = ((bits >> _DROPPED) << _DROPPED) | (np.uint64(1) << (_DROPPED - np.uint64(1)))
    exact = (numbers == 0) | np.isinf(numbers)
    buckets = np.where(exact, np.abs(numbers) * np.sign(numbers), middle.view(np.float64))
    return pl.Series(values.name, buckets, nan_to_null=True)


def register(values: pl.Expr, precision: int) -> pl.Expr:
    """Return for each value the register that its hash selects, and the position of the first one bit in the rest."""
    shape = pl.Struct({"register": pl.Int64, "position": pl.Int64})
    return values.map_batches(lambda column: _registers(column, precision), return_dtype=shape)


def _registers(values: pl.Series, precision: int) -> pl.Series:
    """Hash each distinct value once."""
    distinct = values.unique().drop_nulls()
    chosen = [_register(value, precision) for value in python_values(distinct)]
    found = pl.DataFrame(
        {"value": distinct, "register": [r for r, _ in chosen], "position": [p for _, p in chosen]},
        schema={"value": values.dtype, "register": pl.Int64, "position": pl.Int64},
    )
    mapped = join_nan_safe(values.to_frame("value"), found, ["value"])
    return mapped.select(pl.struct("register", "position").alias(values.name)).to_series()


def _register(value: Any, precision: int) -> tuple[int, int]:
    plain = value + 0.0 if isinstance(value, float) else value  # minus zero is zero
    text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"), sort_keys=True, default=text_in_json)
    hashed = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
    width = 64 - precision
    rest = hashed & ((1 << width) - 1)
    return hashed >> width, width - rest.bit_length() + 1


def estimate(positions: pl.Expr, precision: int) -> pl.Expr:
    """Estimate the number of distinct values from the registers of one window."""
    many = 2**precision
    empty = many - positions.len().cast(pl.Int64)
    alpha = _ALPHA.get(many, 0.7213 / (1 + 1.079 / many))
    guess = alpha * many * many / (empty + (pl.lit(2.0) ** -positions.cast(pl.Float64)).sum())
    counted = many * (math.log(many) - empty.cast(pl.Float64).log())
    small = (guess <= 2.5 * many) & (empty > 0)
    return (pl.when(small).then(counted).otherwise(guess) + 0.5).floor().cast(pl.Int64)
