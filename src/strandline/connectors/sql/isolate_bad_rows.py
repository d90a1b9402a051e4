"""Find the rows of a batch that a database refuses, and write the others."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

import polars as pl

from strandline.connectors.sql.dialect import Refusal
from strandline.errors import SinkError
from strandline.formats.refused_rows import Refused
from strandline.kernel.blocks.python_values import UNCONVERTIBLE, python_rows
from strandline.kernel.panics import message_of

MOST_REFUSED: Final = 100
"""If this many rows are refused before one is accepted, the batch fails: the table is wrong, not the rows."""


def write_isolating_refused(
    rows: pl.DataFrame,
    put: Callable[[pl.DataFrame], None],
    savepoint: Callable[[], AbstractContextManager[None]],
) -> list[Refused]:
    """Write all rows but the refused ones, by bisection: one bad row among a million costs twenty attempts."""
    refused: list[Refused] = []
    taken, parts = 0, [rows]
    while parts:
        part = parts.pop()
        try:
            with savepoint():
                put(part)
            taken += part.height
        except (Refusal, *UNCONVERTIBLE) as problem:
            if part.height > 1:
                half = part.height // 2
                parts += [part[half:], part[:half]]
                continue
            refused.append(Refused(python_rows(part)[0], _error_text(problem)))
            if not taken and len(refused) == MOST_REFUSED:
                raise SinkError(
                    f"the first {MOST_REFUSED} rows of a batch were all refused",
                    detail=str(problem),
                    hint="change the table to accept the pipeline's rows; the next start retries the batch",
                ) from None
    return refused


def _error_text(problem: BaseException) -> str:
    return str(problem) if isinstance(problem, Refusal) else message_of(problem)
