"""Joins that find every value, NaN too."""

from collections.abc import Sequence

import polars as pl


def beside(rows: pl.DataFrame, known: pl.DataFrame, on: Sequence[str]) -> pl.DataFrame:
    """The rows, in their order, each beside what is known under the same values; nulls and NaNs are values."""
    # A NaN that stands alone in a single column is not found by Polars (2.1); beside another column it is.
    one = pl.lit(0).alias("@one")
    both = rows.with_columns(one).join(
        known.with_columns(one), on=[*on, "@one"], how="left", nulls_equal=True, maintain_order="left"
    )
    return both.drop("@one")
