"""Read records as they are, as one column of text or bytes."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from strandline.formats.schema import parse_ddl
from strandline.formats.undecodable_records import LARGEST, DecodeProblem, check_sizes, refuse_bad_limit, to_decoded
from strandline.formats.varints import NOT_UTF8, is_text
from strandline.model.arguments import checked
from strandline.ports.codecs import RAW, Decoded


@dataclass(frozen=True, slots=True)
class Text:
    """Format whose records are UTF-8 text."""

    column: str = "value"
    largest: int = LARGEST

    def __post_init__(self) -> None:
        refuse_bad_limit(self.largest)
        parse_ddl(f"{self.column} string")

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def types(self) -> Mapping[str, str]:
        return {self.column: "string"}

    def decode(self, raw: pl.DataFrame) -> Decoded:
        checked = check_sizes(raw, self.largest)
        values = raw[RAW][checked.full].alias(self.column)
        texts = texts_of(values)
        fine = texts.is_not_null()
        wrong = {int(place): DecodeProblem(NOT_UTF8) for place in checked.full[(~fine).to_numpy()]}
        good = checked.full[fine.to_numpy()]
        return to_decoded(raw, good, texts.drop_nulls().to_frame(), checked.empty, checked.problems | wrong)

    def encode(self, rows: pl.DataFrame) -> pl.Series:
        return rows[self.column].cast(pl.Binary)


@dataclass(frozen=True, slots=True)
class Raw:
    """Format whose records are bytes."""

    column: str = "value"
    largest: int = LARGEST

    def __post_init__(self) -> None:
        refuse_bad_limit(self.largest)
        parse_ddl(f"{self.column} binary")

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def types(self) -> Mapping[str, str]:
        return {self.column: "binary"}

    def decode(self, raw: pl.DataFrame) -> Decoded:
        checked = check_sizes(raw, self.largest)
        found = raw[RAW][checked.full].alias(self.column).to_frame()
        return to_decoded(raw, np.asarray(checked.full), found, checked.empty, checked.problems)

    def encode(self, rows: pl.DataFrame) -> pl.Series:
        return rows[self.column].cast(pl.Binary)


def texts_of(values: pl.Series) -> pl.Series:
    """Convert bytes to text; null where they are not UTF-8."""
    try:
        return values.cast(pl.String)
    except pl.exceptions.ComputeError:
        return pl.Series(values.name, [each.decode() if is_text(each) else None for each in values], pl.String)


@checked
def text(column: str = "value", *, largest: int = LARGEST) -> Text:
    """Read records as text in one column: `text()`, `text("line")`."""
    return Text(column, largest)


@checked
def raw(column: str = "value", *, largest: int = LARGEST) -> Raw:
    """Read records as bytes in one column: `raw()`."""
    return Raw(column, largest)
