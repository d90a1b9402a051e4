"""Decode and encode CSV, one line per record; a value that does not fit its column makes the record a dead letter."""

import csv as stdlib_csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa

from strandline.errors import InvalidStep
from strandline.formats.epoch_times import (
    Times,
    epoch_hint,
    from_epoch,
    number_type,
    refuse_bad_times,
    times_of,
    to_epoch,
)
from strandline.formats.schema import ddl_of, parse_ddl, types_of
from strandline.formats.text import texts_of
from strandline.formats.time_parsing import days, instants, out_of_range
from strandline.formats.undecodable_records import LARGEST, DecodeProblem, check_sizes, refuse_bad_limit, to_decoded
from strandline.formats.varints import NOT_UTF8
from strandline.model.arguments import checked
from strandline.ports.codecs import RAW, Decoded, Masked
from strandline.ports.dead_letter_masking import HIDDEN

_BYTE_ORDER_MARK: Final = "\ufeff"
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_TRUE_OR_FALSE: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Csv:
    """CSV format: values in column order, with a delimiter; quotes inside quotes are doubled. Empty means null."""

    ddl: str
    delimiter: str = ","
    largest: int = LARGEST
    times: Times = ()
    """Columns of timestamps that are numbers since 1970, with their units."""

    def __post_init__(self) -> None:
        refuse_bad_limit(self.largest)
        if len(self.delimiter) != 1 or self.delimiter in '"\r\n':
            raise InvalidStep(f"{self.delimiter!r} cannot be a delimiter", hint="use one character, like ; or a tab")
        for field in parse_ddl(self.ddl):
            if pa.types.is_nested(field.type) or pa.types.is_binary(field.type):
                raise InvalidStep(f"the column {field.name!r} cannot be read from CSV as {ddl_of(field.type)}")
        refuse_bad_times(self.times, parse_ddl(self.ddl))

    @property
    def definition(self) -> Mapping[str, Any]:
        """The fields that checkpoints store. Without times they are those of earlier versions."""
        known = {"ddl": self.ddl, "delimiter": self.delimiter, "largest": self.largest}
        return known | ({"times": self.times} if self.times else {})

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(parse_ddl(self.ddl).names)

    @property
    def types(self) -> Mapping[str, str]:
        """Each column's type in DDL."""
        return types_of(parse_ddl(self.ddl))

    def decode(self, raw: pl.DataFrame) -> Decoded:
        """Split lines into values, then convert whole columns to their types."""
        schema = parse_ddl(self.ddl)
        checked = check_sizes(raw, self.largest)
        problems = dict(checked.problems)
        texts = texts_of(raw[RAW][checked.full])
        lines = texts.str.strip_prefix(_BYTE_ORDER_MARK).str.strip_suffix("\n").str.strip_suffix("\r")
        parts = lines.str.split(self.delimiter)
        plain = (parts.list.len() == len(schema)) & ~lines.str.contains(r'["\r\n]')
        plain = plain.fill_null(value=False)
        easy = parts.filter(plain)
        good, found = checked.full[plain.to_numpy()].tolist(), list[list[str]]()
        for place, line in zip(checked.full[~plain.to_numpy()].tolist(), lines.filter(~plain), strict=True):
            try:
                found.append(self._split(line, len(schema)))
                good.append(place)
            except (ValueError, stdlib_csv.Error) as problem:
                problems[place] = DecodeProblem(str(problem))
        quoted = pl.Series(found, dtype=pl.List(pl.String))
        rows, wrong = _typed(pl.concat([easy, quoted]), schema, dict(self.times))
        problems |= {good[at]: DecodeProblem(why) for at, why in wrong.items()}
        if wrong:
            fine = [at for at in range(len(good)) if at not in wrong]
            rows, good = rows[fine], [good[at] for at in fine]
        return to_decoded(raw, np.array(good, np.int64), rows, checked.empty, problems)

    def _split(self, line: str | None, count: int) -> list[str]:
        """Split a line that has quotes, or that is invalid."""
        if line is None:
            raise ValueError(NOT_UTF8)
        found = list(stdlib_csv.reader(io.StringIO(line, newline=""), delimiter=self.delimiter, strict=True))
        if len(found) > 1:
            raise ValueError(f"{len(found)} lines in a record")
        values = found[0] if found else []
        if len(values) != count:
            raise ValueError(f"{len(values)} values for {count} columns")
        return values

    def mask(self, value: bytes, fields: frozenset[str]) -> Masked | None:
        """Mask the values of these columns; None if the number of values differs from the number of columns."""
        names = self.columns
        try:
            line = value.decode().removeprefix(_BYTE_ORDER_MARK).removesuffix("\n").removesuffix("\r")
            values = self._split(line, len(names))
        except (ValueError, stdlib_csv.Error):
            return None
        masked = [name.casefold() in fields and each != "" for name, each in zip(names, values, strict=True)]
        hidden = {text for each, hide in zip(values, masked, strict=True) if hide for text in (each, repr(each)[1:-1])}
        shown = [HIDDEN if hide else each for each, hide in zip(values, masked, strict=True)]
        return Masked(self._line(shown), tuple(hidden))

    def _line(self, values: Sequence[str]) -> bytes:
        file = io.StringIO(newline="")
        stdlib_csv.writer(file, delimiter=self.delimiter).writerow(values)
        return file.getvalue().removesuffix("\r\n").encode()

    def encode(self, rows: pl.DataFrame) -> pl.Series:
        """Encode each row as a line without its line end."""
        rows = rows.select(self.columns).with_columns(to_epoch(name, unit) for name, unit in self.times)
        found = [self._line([_to_text(each) for each in row]) for row in rows.iter_rows()]
        return pl.Series(found, dtype=pl.Binary)


@checked
def csv(ddl: str, *, delimiter: str = ",", largest: int = LARGEST, times: Mapping[str, str] | None = None) -> Csv:
    """Read CSV records with these columns, in this order: `csv("team string, at timestamp", times={"at": "ms"})`."""
    return Csv(ddl, delimiter, largest, times_of(times))


def _typed(lines: pl.Series, schema: pa.Schema, units: Mapping[str, str]) -> tuple[pl.DataFrame, dict[int, str]]:
    shape = pl.Schema(schema)
    found: dict[str, pl.Series] = {}
    wrong: dict[int, str] = {}
    for place, field in enumerate(schema):
        texts = lines.list.get(place).alias(field.name)
        texts = texts.set(texts == "", None)
        unit = units.get(field.name)
        read = _read(texts, field.type, shape[field.name]) if unit is None else _read_epoch(texts, unit)
        for at in (read.is_null() & texts.is_not_null()).arg_true():
            hint = epoch_hint(field.name) if unit is None and _is_number_for_time(texts[at], field.type) else ""
            wrong.setdefault(at, f"{field.name}: {texts[at]!r} is no {ddl_of(field.type)}{hint}")
        found[field.name] = read
    rows = pl.DataFrame(found, schema=shape)
    for at in out_of_range(rows, schema).arg_true():
        wrong.setdefault(at, "a number or a time out of the range of its type")
    return rows, wrong


def _read(texts: pl.Series, kind: pa.DataType, shape: pl.DataType) -> pl.Series:
    if pa.types.is_string(kind):
        return texts
    if pa.types.is_timestamp(kind):
        return instants(texts)
    if pa.types.is_date(kind):
        return days(texts)
    if pa.types.is_boolean(kind):
        return texts.replace_strict(_TRUE_OR_FALSE, default=None, return_dtype=pl.Boolean)
    if pa.types.is_decimal(kind):
        return pl.Series(texts.name, [_decimal(each, kind) for each in texts], shape)
    return texts.cast(shape, strict=False)


def _read_epoch(texts: pl.Series, unit: str) -> pl.Series:
    kind = pl.Float64 if pa.types.is_floating(number_type(unit)) else pl.Int64
    return from_epoch(texts.cast(kind, strict=False), unit)


def _is_number_for_time(text: str, kind: pa.DataType) -> bool:
    return ddl_of(kind) == "timestamp" and _NUMBER.fullmatch(text) is not None


def _decimal(text: str | None, kind: pa.DataType) -> Decimal | None:
    try:
        found = Decimal(text) if text is not None else None
    except InvalidOperation:
        return None
    if found is None or not found.is_finite():
        return None
    _, digits, exponent = found.as_tuple()
    shift = int(exponent) + kind.scale
    return found if shift >= 0 and len(digits) + shift <= kind.precision else None


def _to_text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
