"""Define the envelope of dead letters, and fill it in stages: at the step, at the source, at delivery."""

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
"""Identifier derived from origin and reason, so a replayed batch gives the same one."""
DETAIL: Final = "@detail"
RAW: Final = "@raw"
"""Original bytes of the record."""
LENGTH: Final = "@length"
SHA256: Final = "@sha256"
MASKED: Final = "@masked"
SOURCE: Final = "@source"
SCHEMA: Final = "@schema"
PIPELINE: Final = "@pipeline"
SEEN: Final = "@seen"
_PLACE: Final = "@place"
"""Offset of the row, distinct also among rows made from one record. The envelope has the offset of the record."""

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
"""Internal name, public name and type of each column. Times are milliseconds."""

NAMES: Final = {own: name for own, (name, _) in ENVELOPE.items()}
PUBLIC: Final = {name: kind for name, kind in ENVELOPE.values()}  # noqa: C416 - names the parts of the tuple

TOO_LARGE: Final = "too_large"
"""Reason for a record that exceeds the size limit of its format."""
SINK_REFUSED: Final = "sink_refused"
"""Reason for a row that a sink rejected."""
WHOLE, FIELDS, CUT = "all", "fields", "cut"
"""Values of MASKED, the missing part of the bytes: all, some fields, or the end of a record that was too long."""

_AT_STEP: Final = (REASON, EXCEPTION, DETAIL, RAW, MASKED, PARTITION, OFFSET, AT, STEP)
_HEAD: Final = 5


@cache
def no_letters() -> pl.DataFrame:
    """Return an empty frame of dead letters as steps create them."""
    return pl.DataFrame(schema={**{name: ENVELOPE[name][1] for name in _AT_STEP}, _PLACE: pl.Int64})


def letters_of(rows: pl.DataFrame, detail: pl.Expr | None = None, step: str | None = None) -> pl.DataFrame:
    """Create dead letters from rejected rows, which have a REASON, or PROBLEM if a user function failed.

    A row may have both, if a lookup failed. Rows have PARTITION, OFFSET and RAW, and may have AT, STEP and EXCEPTION.
    """
    if rows.is_empty():
        return no_letters()
    message = pl.lit(None, pl.String)
    if detail is not None:
        message = detail
    elif DETAIL in rows.columns:
        message = pl.col(DETAIL)
    if PROBLEM in rows.columns:
        exception = pl.col(EXCEPTION) if EXCEPTION in rows.columns else pl.col(PROBLEM).str.extract(r"^(\w+): ")
        failed = pl.lit(FAILED)
        reason = pl.coalesce(REASON, failed) if REASON in rows.columns else failed
        known = [reason.alias(REASON), pl.col(PROBLEM).alias(DETAIL), exception.alias(EXCEPTION)]
    else:
        known = [pl.col(REASON), message.alias(DETAIL)]
    found = rows.with_columns(*known, pl.col(OFFSET).alias(_PLACE))
    if ORIGIN in rows.columns:
        found = found.with_columns(pl.coalesce(ORIGIN, OFFSET).alias(OFFSET))
    if step is not None:
        this_step = pl.lit(step)
        found = found.with_columns((pl.coalesce(STEP, this_step) if STEP in found.columns else this_step).alias(STEP))
    shape = no_letters().schema
    return found.select(
        (pl.col(name) if name in found.columns else pl.lit(None)).cast(kind).alias(name) for name, kind in shape.items()
    )


def with_source(letters: pl.DataFrame, source: str | None, *, framed: bool = False) -> pl.DataFrame:
    """Add the source, and length, hash and schema id of the raw bytes."""
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
    """Return the schema id of a record in the Confluent wire format; None if it has none."""
    if value is None or len(value) < _HEAD or value[0]:
        return None
    return int.from_bytes(value[1:_HEAD])


def complete_envelopes(letters: pl.DataFrame, pipeline: str, clock: int) -> pl.DataFrame:
    """Add pipeline, first-seen time and id. The order of letters does not depend on Spark's order of rows."""
    ordered = letters.sort(SOURCE, PARTITION, _PLACE, STEP, REASON, DETAIL, nulls_last=True, maintain_order=True)
    # One row may fail twice in one step, once for each of two outputs, so equal identities are numbered.
    seen = dict[str, int]()
    ids = []
    for *place, raw in ordered.select(SOURCE, PARTITION, _PLACE, STEP, REASON, RAW).iter_rows():
        origin = json.dumps([pipeline, *place, *_content_identity(place[-1], raw, clock)])
        seen[origin] = seen.get(origin, 0) + 1
        ids.append(hashlib.sha256(f"{origin} {seen[origin]}".encode()).hexdigest()[:32])
    complete = ordered.with_columns(
        pl.Series(ID, ids, pl.String),
        pl.lit(pipeline).alias(PIPELINE),
        pl.lit(clock, pl.Int64).alias(SEEN),
    )
    return complete.select(*ENVELOPE)


def _content_identity(reason: str, raw: bytes | None, clock: int) -> list[Any]:
    """Identify a row that a sink rejected by its content, or by its batch: output rows have no source position."""
    if reason != SINK_REFUSED:
        return []
    return [clock if raw is None else hashlib.sha256(raw).hexdigest()]


Reasons = Mapping[str, tuple[int, str]]
"""By reason: the number of letters, and the detail of the first one."""


def reasons_of(frames: Iterable[pl.DataFrame]) -> Reasons:
    """Count letters by reason."""
    found: dict[str, tuple[int, str]] = {}
    for frame in frames:
        counted = frame.group_by(REASON, maintain_order=True).agg(pl.len(), pl.col(DETAIL).first())
        for reason, many, detail in counted.iter_rows():
            known = found.get(reason, (0, detail or ""))
            found[reason] = (known[0] + many, known[1])
    return found
