"""Convert rows that a sink refused to dead letters, with the sink's error."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from strandline.kernel.blocks.block import OFFSET, PARTITION
from strandline.kernel.blocks.python_values import python_rows, row_as_json
from strandline.kernel.dead_letters import DETAIL, ENVELOPE, RAW, REASON, SINK_REFUSED, complete_envelopes, letters_of
from strandline.ports.dead_letter_masking import outgoing
from strandline.redaction import redact

_LONGEST: Final = 400


@dataclass(frozen=True, slots=True)
class Refused:
    """One refused row, and the sink's error."""

    row: Mapping[str, Any]
    detail: str


def row_of(row: pl.DataFrame) -> dict[str, Any]:
    """Return the only row of a frame; times outside Python's calendar as texts."""
    return python_rows(row)[0]


def refused_letters(
    refused: Iterable[Refused], *, sink: str, lineage: str, clock: int, mask: Iterable[str]
) -> pl.DataFrame:
    """Build complete envelopes, with masked fields."""
    rows = [
        {
            **_place(each.row),
            REASON: SINK_REFUSED,
            DETAIL: redact(each.detail)[:_LONGEST],
            RAW: row_as_json(each.row),
        }
        for each in refused
    ]
    kinds = {name: ENVELOPE[name][1] for name in (PARTITION, OFFSET, REASON, DETAIL, RAW)}
    return complete_envelopes(
        outgoing(letters_of(pl.DataFrame(rows, schema=kinds), step=sink), None, None, mask), lineage, clock
    )


def _place(row: Mapping[str, Any]) -> dict[str, Any]:
    """The source position of a late element; user columns may have the same names."""
    partition, offset = row.get("source_partition"), row.get("source_offset")
    known = isinstance(partition, str) and isinstance(offset, int)
    return {PARTITION: partition, OFFSET: offset} if known else {PARTITION: None, OFFSET: None}
