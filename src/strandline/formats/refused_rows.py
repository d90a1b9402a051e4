"""Rows that a sink will not take, as dead letters: as much as can be read of each, with what the sink said."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from strandline.formats.sink_columns import row_as_json
from strandline.kernel.blocks.block import OFFSET, PARTITION
from strandline.kernel.dead_letters import DETAIL, ENVELOPE, RAW, REASON, SINK_REFUSED, letters_of, sealed
from strandline.ports.dead_letter_masking import outgoing

_LONGEST: Final = 400


@dataclass(frozen=True, slots=True)
class Refused:
    """One row, and what was said of it."""

    row: Mapping[str, Any]
    said: str


def refused_letters(
    refused: Iterable[Refused], *, sink: str, lineage: str, clock: int, mask: Iterable[str]
) -> pl.DataFrame:
    """Whole envelopes, with nothing in them that is to be hidden."""
    told = [
        {
            **_place(each.row),
            REASON: SINK_REFUSED,
            DETAIL: each.said[:_LONGEST],
            RAW: row_as_json(each.row),
        }
        for each in refused
    ]
    kinds = {name: ENVELOPE[name][1] for name in (PARTITION, OFFSET, REASON, DETAIL, RAW)}
    return sealed(outgoing(letters_of(pl.DataFrame(told, schema=kinds), step=sink), None, None, mask), lineage, clock)


def _place(row: Mapping[str, Any]) -> dict[str, Any]:
    """A late element knows where it lay; a user's own columns may be called so too."""
    partition, offset = row.get("source_partition"), row.get("source_offset")
    known = isinstance(partition, str) and isinstance(offset, int)
    return {PARTITION: partition, OFFSET: offset} if known else {PARTITION: None, OFFSET: None}
