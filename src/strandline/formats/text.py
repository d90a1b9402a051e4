"""Records as they are: one column with a text, or with bytes."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from strandline.formats.schema import parse_ddl
from strandline.formats.undecodable_records import LARGEST, Complaint, checked_size, sift, tell
from strandline.formats.varints import NOT_UTF8, is_text
from strandline.ports.codecs import RAW, Decoded


@dataclass(frozen=True, slots=True)
class Text:
    """Each record is a text in UTF-8."""

    column: str = "value"
    largest: int = LARGEST

    def __post_init__(self) -> None:
        checked_size(self.largest)
        parse_ddl(f"{self.column} string")

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def types(self) -> Mapping[str, str]:
        return {self.column: "string"}

    def decode(self, raw: pl.DataFrame) -> Decoded:
        sifted = sift(raw, self.largest)
        values = raw[RAW][sifted.full].alias(self.column)
        texts = texts_of(values)
        fine = texts.is_not_null()
        wrong = {int(place): Complaint(NOT_UTF8) for place in sifted.full[(~fine).to_numpy()]}
        good = sifted.full[fine.to_numpy()]
        return tell(raw, good, texts.drop_nulls().to_frame(), sifted.empty, sifted.complaints | wrong)

    def encode(self, rows: pl.DataFrame) -> pl.Series:
        return rows[self.column].cast(pl.Binary)


@dataclass(frozen=True, slots=True)
class Raw:
    """Each record is its bytes."""

    column: str = "value"
    largest: int = LARGEST

    def __post_init__(self) -> None:
        checked_size(self.largest)
        parse_ddl(f"{self.column} binary")

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def types(self) -> Mapping[str, str]:
        return {self.column: "binary"}

    def decode(self, raw: pl.DataFrame) -> Decoded:
        sifted = sift(raw, self.largest)
        found = raw[RAW][sifted.full].alias(self.column).to_frame()
        return tell(raw, np.asarray(sifted.full), found, sifted.empty, sifted.complaints)

    def encode(self, rows: pl.DataFrame) -> pl.Series:
        return rows[self.column].cast(pl.Binary)


def texts_of(values: pl.Series) -> pl.Series:
    """Null where the bytes are no text."""
    try:
        return values.cast(pl.String)
    except pl.exceptions.ComputeError:
        return pl.Series(values.name, [each.decode() if is_text(each) else None for each in values], pl.String)


def text(column: str = "value", *, largest: int = LARGEST) -> Text:
    """Records that are texts, in one column: `text()`, `text("line")`."""
    return Text(column, largest)


def raw(column: str = "value", *, largest: int = LARGEST) -> Raw:
    """Records as bytes, in one column: `raw()`."""
    return Raw(column, largest)
