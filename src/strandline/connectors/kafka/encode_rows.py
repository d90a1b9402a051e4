"""Encode rows as Kafka records: keys, values and headers, a column at a time where possible."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, runtime_checkable

import polars as pl

from strandline.errors import SinkError
from strandline.formats.refused_rows import Refused
from strandline.formats.sink_columns import names_beside, to_sink_rows
from strandline.kernel.blocks.block import AT, END, START
from strandline.kernel.blocks.column_types import YEAR_ONE, YEAR_TEN_THOUSAND
from strandline.kernel.blocks.python_values import UNCONVERTIBLE, python_rows
from strandline.kernel.panics import message_of
from strandline.kernel.step import WATERMARK
from strandline.kernel.window.panes import INDEX, RETRACTION, TIMESTAMP, TIMING
from strandline.ports.codecs import REASON

_INSTANTS: Final = (START, END, TIMESTAMP, AT, WATERMARK)
_TOLD_IN_HEADERS: Final = {TIMING: "timing", INDEX: "pane_index", RETRACTION: "retraction", REASON: "reason"}

Headers = list[tuple[str, bytes]]


@runtime_checkable
class Format(Protocol):
    """A format that encodes rows as bytes: `sl.json(…)`, `sl.avro(…)`, `sl.protobuf(…)`, `sl.text(…)`, `sl.raw(…)`."""

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def types(self) -> Mapping[str, str]: ...

    def encode(self, rows: pl.DataFrame) -> pl.Series: ...


def in_format(frame: pl.DataFrame, batch: int, form: Format, sink: str) -> pl.Series:
    """Encode each row in a format. The format names columns by their public names and may ask for instants as
    timestamps."""
    missing = refuse_unknown(form.columns, frame, "the format needs the columns {}, which the rows do not have", sink)
    instants = [missing[name] for name in _INSTANTS if name in frame.columns]
    shown = frame.with_columns(pl.lit(batch, pl.Int64).alias(missing["@batch"])).rename(missing, strict=False)
    as_times = [name for name in instants if form.types.get(name) == "timestamp"]
    # The extreme instants are outside every calendar; a format that asks for a timestamp gets null.
    inside = pl.col(as_times).is_between(YEAR_ONE, YEAR_TEN_THOUSAND, closed="left")
    times = shown.with_columns(pl.when(inside).then(pl.col(as_times))) if as_times else shown
    clocks = [
        pl.from_epoch(name, time_unit="ms").dt.cast_time_unit("us").dt.replace_time_zone("UTC") for name in as_times
    ]
    return form.encode(times.with_columns(clocks))


def refuse_unknown(columns: Sequence[str], frame: pl.DataFrame, problem: str, sink: str) -> dict[str, str]:
    """Return the public names of our columns; raise an error if one of `columns` is not among the frame's."""
    public = names_beside(frame.columns)
    known = {public.get(name, name) for name in (*frame.columns, "@batch")}
    unknown = [name for name in columns if name not in known]
    if unknown:
        raise SinkError(
            f"{sink}: {problem.format(', '.join(unknown))}",
            detail=f"the rows have {', '.join(sorted(known))}",
            hint="name other columns",
        )
    return public


def encode_or_refuse(
    frame: pl.DataFrame, write: Callable[[pl.DataFrame], pl.Series], batch: int
) -> tuple[pl.DataFrame, pl.Series, list[Refused]]:
    """Encode all rows that can be encoded. Find the rows that cannot be by halving, and return them with the format's
    error."""
    try:
        return frame, write(frame), []
    except (SinkError, *UNCONVERTIBLE) as problem:
        if frame.height <= 1:
            rows = python_rows(to_sink_rows(frame, batch).rows)
            return frame.clear(), pl.Series([], dtype=pl.Binary), [Refused(row, _error_text(problem)) for row in rows]
    half = frame.height // 2
    first, second = encode_or_refuse(frame[:half], write, batch), encode_or_refuse(frame[half:], write, batch)
    return pl.concat([first[0], second[0]]), pl.concat([first[1], second[1]]), first[2] + second[2]


def _error_text(problem: BaseException) -> str:
    return str(problem) if isinstance(problem, SinkError) else message_of(problem)


def pane_headers(frame: pl.DataFrame, more: Headers) -> list[Headers]:
    """Build each row's headers: its pane metadata, or the reason it is in no pane."""
    names = {own: name for own, name in _TOLD_IN_HEADERS.items() if own in frame.columns}
    if not names:
        return [more] * frame.height
    known: dict[tuple[Any, ...], Headers] = {}
    found = []
    for row in frame.select(list(names)).iter_rows():
        if row not in known:
            known[row] = [*((name, _header_value(cell)) for name, cell in zip(names.values(), row, strict=True)), *more]
        found.append(known[row])
    return found


def _header_value(value: Any) -> bytes:
    return (str(value).lower() if isinstance(value, bool) else str(value)).encode()
