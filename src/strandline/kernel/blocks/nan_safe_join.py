"""Join rows on values, with NaN equal to NaN and null equal to null."""

from collections.abc import Sequence

import polars as pl


def join_nan_safe(rows: pl.DataFrame, known: pl.DataFrame, on: Sequence[str]) -> pl.DataFrame:
    """Left-join `known` to rows, in the order of the rows. Nulls and NaNs match themselves."""
    # Polars (2.1) does not match NaN when joining on one column; with a second join column it does.
    constant = pl.lit(0).alias("@one")
    joined = rows.with_columns(constant).join(
        known.with_columns(constant), on=[*on, "@one"], how="left", nulls_equal=True, maintain_order="left"
    )
    return joined.drop("@one")
