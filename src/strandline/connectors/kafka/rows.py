"""Rows as records: keys, values and headers, a column at a time where that is possible."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, runtime_checkable

import polars as pl

from strandline.errors import SinkError
from strandline.formats.refused import Refused
from strandline.formats.told import Column, Kind, Told, names_beside, tell
from strandline.kernel.blocks import AT, END, START
from strandline.kernel.panes import INDEX, RETRACTION, TIMESTAMP, TIMING
from strandline.kernel.step import WATERMARK
from strandline.model import elements
from strandline.spark.ports import REASON

_YEAR_ONE, _YEAR_TEN_THOUSAND = -62_135_596_800_000, 253_402_300_800_000
_INSTANTS: Final = (START, END, TIMESTAMP, AT, WATERMARK)
_TOLD_IN_HEADERS: Final = {TIMING: "timing", INDEX: "pane_index", RETRACTION: "retraction", REASON: "reason"}

Headers = list[tuple[str, bytes]]


@runtime_checkable
class Format(Protocol):
    """A way to write rows as bytes: `sl.json(…)`, `sl.avro(…)`, `sl.protobuf(…)`, `sl.text(…)`, `sl.raw(…)`."""

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def types(self) -> Mapping[str, str]: ...

    def encode(self, rows: pl.DataFrame) -> pl.Series: ...


def as_json(frame: pl.DataFrame, batch: int, columns: Sequence[str] | None = None) -> pl.Series:
    """Each row as a JSON object of its columns under their public names, all of them or these."""
    told = tell(frame, batch)
    chosen = told if columns is None else _ordered(told, columns)
    texts = chosen.rows.select(_readable(column) for column in chosen.columns)
    real = [column.name for column in chosen.columns if column.kind is Kind.REAL]
    odd = any(not texts[name].is_finite().all() for name in real) or not texts.width
    if odd or any(column.kind is Kind.JSON for column in chosen.columns):
        nested = [column.name for column in chosen.columns if column.kind is Kind.JSON]
        return pl.Series([_dumped(row, nested) for row in texts.iter_rows(named=True)], dtype=pl.Binary)
    return pl.Series(texts.write_ndjson().encode().split(b"\n")[:-1], dtype=pl.Binary)


def _ordered(told: Told, columns: Sequence[str]) -> Told:
    by_name = {column.name: column for column in told.columns}
    return Told(told.rows.select(columns), tuple(by_name[name] for name in columns))


def _dumped(row: dict[str, Any], nested: Sequence[str]) -> bytes:
    """A row with values that are lists or structures, or numbers for which JSON has no word."""
    for name, value in row.items():
        if name in nested and value is not None:
            row[name] = json.loads(value)
        elif isinstance(value, float) and not math.isfinite(value):
            row[name] = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()


def _readable(column: Column) -> pl.Expr:
    """Times in ISO 8601, bytes in base64, decimals as texts; everything else as it is."""
    mine = pl.col(column.name)
    match column.kind:
        case Kind.INSTANT:
            inside = pl.when(mine.is_between(_YEAR_ONE, _YEAR_TEN_THOUSAND, closed="left")).then(mine)
            text = pl.from_epoch(inside, time_unit="ms").dt.to_string("%Y-%m-%dT%H:%M:%S%.3fZ")
            begins, over = mine == elements.BEGINNING.ms, mine == elements.END.ms
            ends = pl.when(begins).then(pl.lit("-infinity")).when(over).then(pl.lit("infinity"))
            return ends.otherwise(text.fill_null(mine.cast(pl.String))).alias(column.name)
        case Kind.MOMENT:
            return mine.dt.convert_time_zone("UTC").dt.to_string("%Y-%m-%dT%H:%M:%S%.6fZ")
        case Kind.WALL:
            return mine.dt.to_string("%Y-%m-%dT%H:%M:%S%.6f")
        case Kind.BINARY:
            return mine.bin.encode("base64")
        case Kind.DATE | Kind.TIME | Kind.DECIMAL:
            return mine.cast(pl.String)
        case _:
            return mine


def in_format(frame: pl.DataFrame, batch: int, form: Format, sink: str) -> pl.Series:
    """Each row as its format writes it; columns are found by their public names, our instants as its types ask."""
    missing = refuse_unknown(form.columns, frame, "its format asks for {}, which its rows do not have", sink)
    instants = [missing[name] for name in _INSTANTS if name in frame.columns]
    shown = frame.with_columns(pl.lit(batch, pl.Int64).alias(missing["@batch"])).rename(missing, strict=False)
    as_times = [name for name in instants if form.types.get(name) == "timestamp"]
    # The ends of time are on no calendar; a format that asks for a time gets none.
    inside = pl.col(as_times).is_between(_YEAR_ONE, _YEAR_TEN_THOUSAND, closed="left")
    times = shown.with_columns(pl.when(inside).then(pl.col(as_times))) if as_times else shown
    clocks = [
        pl.from_epoch(name, time_unit="ms").dt.cast_time_unit("us").dt.replace_time_zone("UTC") for name in as_times
    ]
    return form.encode(times.with_columns(clocks))


def refuse_unknown(columns: Sequence[str], frame: pl.DataFrame, said: str, sink: str) -> dict[str, str]:
    """The public names of our columns; an error if these columns are not all among the frame's."""
    public = names_beside(frame.columns)
    known = {public.get(name, name) for name in (*frame.columns, "@batch")}
    unknown = [name for name in columns if name not in known]
    if unknown:
        raise SinkError(
            f"{sink}: {said.format(', '.join(unknown))}",
            detail=f"they have {', '.join(sorted(known))}",
            hint="name other columns",
        )
    return public


def encoded(
    frame: pl.DataFrame, write: Callable[[pl.DataFrame], pl.Series], batch: int
) -> tuple[pl.DataFrame, pl.Series, list[Refused]]:
    """All rows that can be written, as bytes; and the others, found by halves, with what the format said of them."""
    try:
        return frame, write(frame), []
    except SinkError as problem:
        if frame.height <= 1:
            rows = tell(frame, batch).rows.to_dicts()
            return frame.clear(), pl.Series([], dtype=pl.Binary), [Refused(row, str(problem)) for row in rows]
    half = frame.height // 2
    first, second = encoded(frame[:half], write, batch), encoded(frame[half:], write, batch)
    return pl.concat([first[0], second[0]]), pl.concat([first[1], second[1]]), first[2] + second[2]


def headers_of(frame: pl.DataFrame, more: Headers) -> list[Headers]:
    """What is told of each row beside its value: which pane it is, or why it is not in one."""
    names = {own: name for own, name in _TOLD_IN_HEADERS.items() if own in frame.columns}
    if not names:
        return [more] * frame.height
    known: dict[tuple[Any, ...], Headers] = {}
    found = []
    for row in frame.select(list(names)).iter_rows():
        if row not in known:
            known[row] = [*((name, _shown(cell)) for name, cell in zip(names.values(), row, strict=True)), *more]
        found.append(known[row])
    return found


def _shown(cell: Any) -> bytes:
    return (str(cell).lower() if isinstance(cell, bool) else str(cell)).encode()
