"""Records in whole batches: JSON objects to columns, and those that are none to dead letters, one by one."""

import io
import json as stdlib_json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl
import pyarrow as pa
from pyarrow import json as arrow_json

from strandline.formats.schema import parse_ddl
from strandline.spark.ports import DETAIL, RAW, REASON, Decoded

UNDECODABLE = "undecodable"

_LONGEST_DETAIL: Final = 200
_SPACE: Final = b" \t\r\n"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_NULL_AFTER_OBJECT: Final = re.compile(rb"\}[ \t\r\n]*null")

_TIMES: Final = ("%+", "%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M%#z", "%Y-%m-%d")
"""ISO 8601 with an offset, or without one, which is UTC. The first is by far the most common, and the fastest."""


@dataclass(frozen=True, slots=True)
class Json:
    """JSON objects, one a record; the columns as DDL. Fields that are not asked for are passed over."""

    ddl: str

    def __post_init__(self) -> None:
        parse_ddl(self.ddl)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(parse_ddl(self.ddl).names)

    def decode(self, raw: pl.DataFrame) -> Decoded:
        """The records that are JSON objects of this shape, and the others with the parser's complaint."""
        schema = parse_ddl(self.ddl)
        good, found, complaints = _read(raw[RAW].to_list(), _as_written(schema))
        rows = pl.concat([raw[good], _timed(found, schema)], how="horizontal")
        bad = raw[sorted(complaints)].with_columns(
            pl.lit(UNDECODABLE).alias(REASON),
            # The parser may quote the record, which is kept beside it anyway and may be long.
            pl.Series(DETAIL, [complaints[place] for place in sorted(complaints)], pl.String).str.head(_LONGEST_DETAIL),
        )
        return Decoded(rows, bad)


def json(ddl: str) -> Json:
    """JSON records with these columns: `json("team string, score long, at timestamp")`."""
    return Json(ddl)


def _as_written(schema: pa.Schema) -> pa.Schema:
    """Times are written as texts; they are read as such and understood afterwards, each on its own."""
    return pa.schema([pa.field(f.name, pa.string() if pa.types.is_timestamp(f.type) else f.type) for f in schema])


def _timed(table: pa.Table, schema: pa.Schema) -> pl.DataFrame:
    frame = pl.DataFrame(table)
    times = [field.name for field in schema if pa.types.is_timestamp(field.type)]
    return frame.with_columns(_instants(frame[name]) for name in times)


def _instants(texts: pl.Series) -> pl.Series:
    """Each text by the first way of writing that fits it; to infer one way would make it depend on its neighbours."""
    found = pl.Series(texts.name, [None] * len(texts), pl.Datetime("us", "UTC"))
    for way in _TIMES:
        missing = found.is_null() & texts.is_not_null()
        if not missing.any():
            break
        read = texts.str.to_datetime(way, time_unit="us", time_zone="UTC", strict=False)
        found = read.zip_with(missing, found)
    return found


def _read(values: Sequence[bytes | None], schema: pa.Schema) -> tuple[list[int], pa.Table, dict[int, str]]:
    """The places of the records that could be read, their columns, and a complaint for each of the others."""
    complaints: dict[int, str] = {}
    lines: dict[int, bytes] = {}
    for place, value in enumerate(values):
        try:
            lines[place] = _checked(value)
        except (ValueError, RecursionError) as problem:
            complaints[place] = str(problem)
    good: list[int] = []
    tables: list[pa.Table] = []
    _halve(list(lines), lines, schema, good, tables, complaints)
    table = pa.concat_tables(tables) if tables else schema.empty_table()
    return good, table, complaints


def _checked(value: bytes | None) -> bytes:
    """The record without the space around it, if it opens and closes an object: it cannot run into its neighbours."""
    record = b"" if value is None else value.removeprefix(_BYTE_ORDER_MARK).strip(_SPACE)
    if not record:
        raise ValueError("an empty record")
    record.decode()
    if not (record.startswith(b"{") and record.endswith(b"}")):
        raise ValueError("not a JSON object")
    if b"null" in record and _NULL_AFTER_OBJECT.search(record):
        # Arrow's parser crashes the process on a null that stands where an object should; in a text it is harmless.
        stdlib_json.loads(record)
    return record


def _halve(
    places: list[int],
    lines: dict[int, bytes],
    schema: pa.Schema,
    good: list[int],
    tables: list[pa.Table],
    complaints: dict[int, str],
) -> None:
    """Reads all at once; where that fails, each half on its own, down to the records at fault."""
    if not places:
        return
    try:
        tables.append(_parse([lines[place] for place in places], schema))
        good.extend(places)
    except (pa.ArrowInvalid, ValueError) as problem:
        if len(places) == 1:
            complaints[places[0]] = str(problem)
            return
        middle = len(places) // 2
        for half in (places[:middle], places[middle:]):
            _halve(half, lines, schema, good, tables, complaints)


def _parse(lines: list[bytes], schema: pa.Schema) -> pa.Table:
    parsing = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    # A block must hold the longest record, and one block keeps the parser from starting threads. It ends with a
    # newline, so that records written over several lines are not cut at their last one.
    text = b"\n".join([*lines, b""])
    reading = arrow_json.ReadOptions(use_threads=False, block_size=max(len(text) + 1, 1024))
    table = arrow_json.read_json(io.BytesIO(text), reading, parsing)
    if table.num_rows != len(lines):
        raise ValueError("more than one JSON object in a record")
    return table
