"""Name the errors of Polars: a panic is not an Exception in Python, so `except Exception` misses it."""

from typing import Final

import polars as pl

PanicException: Final = pl.exceptions.PanicException

ANY_FAILURE: Final = (Exception, PanicException)
"""What a user function or an expression may raise."""
POLARS_FAILURE: Final = (pl.exceptions.PolarsError, PanicException)
"""What Polars raises when it cannot process rows."""


def message_of(problem: BaseException) -> str:
    """Return the exception's name and its first line."""
    lines = str(problem).strip().splitlines()
    return f"{type(problem).__name__}: {lines[0] if lines else ''}"
