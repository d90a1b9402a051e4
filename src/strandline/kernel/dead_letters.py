"""The envelope of a dead letter: all that is told of one, said once, and filled as far as each place knows it."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

import polars as pl

from strandline.kernel.blocks.block import AT, OFFSET, PARTITION
from strandline.kernel.blocks.block import REASON as REASON  # noqa: PLC0414 - refused elements have the same column
from strandline.kernel.stateless_steps import EXCEPTION, FAILED, ORIGIN, PROBLEM, STEP

ID: Final = "@id"
"""Made of where a letter came from and why, so that a batch played again gives it the same."""
DETAIL: Final = "@detail"
RAW: Final = "@raw"
"""A record's bytes as they came."""
LENGTH: Final = "@length"
SHA256: Final = "@sha256"
MASKED: Final = "@masked"
SOURCE: Final = "@source"
SCHEMA: Final = "@schema"
PIPELINE: Final = "@pipeline"
SEEN: Final = "@seen"
_PLACE: Final = "@place"
"""Its position among its neighbours, also where a record became several rows; the envelope has the record's own."""

ENVELOPE: Final[dict[str, tuple[str, Any]]] = {
    ID: ("id", pl.String),
    REASON: ("reason", pl.String),
    EXCEPTION: ("exception", pl.String),
    DETAIL: ("detail", pl.String),
    RAW: ("raw", pl.Binary),
    LENGTH: ("raw_length", pl.Int64),
    SHA256: ("raw_sha256", pl.String),
    MASKED: ("masked", pl.String),
    SOURCE: ("source", pl.String),
    PARTITION: ("source_partition", pl.String),
    OFFSET: ("source_offset", pl.Int64),
    AT: ("event_time", pl.Int64),
    PIPELINE: ("pipeline", pl.String),
    STEP: ("step", pl.String),
    SCHEMA: ("schema_id", pl.Int64),
    SEEN: ("first_seen", pl.Int64),
}
"""Each column's own name, what it is called outside, and its type; times are milliseconds."""

NAMES: Final = {own: name for own, (name, _) in ENVELOPE.items()}
PUBLIC: Final = {name: kind for name, kind in ENVELOPE.values()}  # noqa: C416 - a tuple's parts, named

TOO_LARGE: Final = "too_large"
"""The reason of a record that is longer than its format reads."""
SINK_REFUSED: Final = "sink_refused"
"""The reason of a row that a sink did not take."""
WHOLE, FIELDS, CUT = "all", "fields", "cut"
"""What of a letter's bytes is not in it: all, some fields, or the end of a record that was too long to be read."""

_ON_THE_WAY: Final = (REASON, EXCEPTION, DETAIL, RAW, MASKED, PARTITION, OFFSET, AT, STEP)
_HEAD: Final = 5


@cache
def no_letters() -> pl.DataFrame:
    """Dead letters where they arise, none yet."""
    return pl.DataFrame(schema={**{name: ENVELOPE[name][1] for name in _ON_THE_WAY}, _PLACE: pl.Int64})


def letters_of(rows: pl.DataFrame, detail: pl.Expr | None = None, step: str | None = None) -> pl.DataFrame:
    """Dead letters of rows with a REASON, or a PROBLEM that a function had with them; with what they know of the rest.

    Rows have PARTITION, OFFSET and RAW, and may have AT, STEP and EXCEPTION.
    """
    if rows.is_empty():
        return no_letters()
    said = pl.lit(None, pl.String)
    if detail is not None:
        said = detail
    elif DETAIL in rows.columns:
        said = pl.col(DETAIL)
    if PROBLEM in rows.columns:
        word = pl.col(EXCEPTION) if EXCEPTION in rows.columns else pl.col(PROBLEM).str.extract(r"^(\w+): ")
        known = [pl.lit(FAILED).alias(REASON), pl.col(PROBLEM).alias(DETAIL), word.alias(EXCEPTION)]
    else:
        known = [pl.col(REASON), said.alias(DETAIL)]
    found = rows.with_columns(*known, pl.col(OFFSET).alias(_PLACE))
    if ORIGIN in rows.columns:
        found = found.with_columns(pl.coalesce(ORIGIN, OFFSET).alias(OFFSET))
    if step is not None:
        mine = pl.lit(step)
        found = found.with_columns((pl.coalesce(STEP, mine) if STEP in found.columns else mine).alias(STEP))
    shape = no_letters().schema
    return found.select(
        (pl.col(name) if name in found.columns else pl.lit(None)).cast(kind).alias(name) for name, kind in shape.items()
    )


def addressed(letters: pl.DataFrame, source: str | None, *, framed: bool = False) -> pl.DataFrame:
    """Letters with the source they came from, and what their bytes alone tell: length, hash, and a schema's id."""
    raw = letters[RAW]
    digests = [None if value is None else hashlib.sha256(value).hexdigest() for value in raw]
    known = letters.with_columns(
        pl.lit(source, pl.String).alias(SOURCE),
        pl.col(RAW).bin.size().cast(pl.Int64).alias(LENGTH),
        pl.Series(SHA256, digests, pl.String),
        pl.Series(SCHEMA, [_schema_id(value) if framed else None for value in raw], pl.Int64),
    )
    return known.select(*letters.columns, SOURCE, LENGTH, SHA256, SCHEMA)


def _schema_id(value: bytes | None) -> int | None:
    """The id in front of a record in the Confluent wire format."""
    if value is None or len(value) < _HEAD or value[0]:
        return None
    return int.from_bytes(value[1:_HEAD])


def sealed(letters: pl.DataFrame, pipeline: str, clock: int) -> pl.DataFrame:
    """Whole envelopes, in an order that does not hang on Spark's: whose they are, when first seen, and their ids."""
    ordered = letters.sort(SOURCE, PARTITION, _PLACE, STEP, REASON, DETAIL, nulls_last=True, maintain_order=True)
    # The same row may fail twice in one step, on the way to two outputs.
    seen = dict[str, int]()
    ids = []
    for *place, raw in ordered.select(SOURCE, PARTITION, _PLACE, STEP, REASON, RAW).iter_rows():
        told = json.dumps([pipeline, *place, *_said_itself(place[-1], raw, clock)])
        seen[told] = seen.get(told, 0) + 1
        ids.append(hashlib.sha256(f"{told} {seen[told]}".encode()).hexdigest()[:32])
    whole = ordered.with_columns(
        pl.Series(ID, ids, pl.String),
        pl.lit(pipeline).alias(PIPELINE),
        pl.lit(clock, pl.Int64).alias(SEEN),
    )
    return whole.select(*ENVELOPE)


def _said_itself(reason: str, raw: bytes | None, clock: int) -> list[Any]:
    """A row on its way out has no place of its own: what it says, its batch too, tells it apart from others."""
    if reason != SINK_REFUSED:
        return []
    return [clock if raw is None else hashlib.sha256(raw).hexdigest()]


Reasons = Mapping[str, tuple[int, str]]
"""By reason, how many letters have it, and what was said of the first."""


def reasons_of(frames: Iterable[pl.DataFrame]) -> Reasons:
    """Why there are letters."""
    found: dict[str, tuple[int, str]] = {}
    for frame in frames:
        counted = frame.group_by(REASON, maintain_order=True).agg(pl.len(), pl.col(DETAIL).first())
        for reason, many, detail in counted.iter_rows():
            known = found.get(reason, (0, detail or ""))
            found[reason] = (known[0] + many, known[1])
    return found
