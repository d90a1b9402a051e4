"""Mask secrets in the reasons of dead letters, before any sink stores them."""

import polars as pl

from strandline.kernel.dead_letters import DETAIL
from strandline.redaction import redact


def without_secrets(letters: pl.DataFrame) -> pl.DataFrame:
    """Return the letters with every secret in their details masked. Their records stay as they are."""
    details = letters[DETAIL].unique().drop_nulls().to_list()
    masked = {each: shown for each in details if (shown := redact(each)) != each}
    return letters.with_columns(pl.col(DETAIL).replace(masked)) if masked else letters
