"""The rows of a batch that a database will not take, found among the many that it does."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

import polars as pl

from strandline.connectors.sql.dialect import Refusal
from strandline.errors import SinkError
from strandline.formats.refused_rows import Refused

ENOUGH: Final = 100
"""Where so many rows are refused before one is taken, it is the table that does not fit, not a row."""


def sift(
    rows: pl.DataFrame,
    put: Callable[[pl.DataFrame], None],
    savepoint: Callable[[], AbstractContextManager[None]],
) -> list[Refused]:
    """Puts all rows but those that are refused, by halves: one bad row among a million costs twenty attempts."""
    refused: list[Refused] = []
    taken, parts = 0, [rows]
    while parts:
        part = parts.pop()
        try:
            with savepoint():
                put(part)
            taken += part.height
        except Refusal as problem:
            if part.height > 1:
                half = part.height // 2
                parts += [part[half:], part[:half]]
                continue
            refused.append(Refused(part.to_dicts()[0], str(problem)))
            if not taken and len(refused) == ENOUGH:
                raise SinkError(
                    f"the first {ENOUGH} rows of a batch were refused, every one",
                    detail=str(problem),
                    hint="let the table take what the pipeline writes; the next start tries the batch again",
                ) from None
    return refused
