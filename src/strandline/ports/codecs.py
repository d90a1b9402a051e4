"""Define what a format must offer: decode records into columns, encode rows into records, mask fields."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

import polars as pl

from strandline.kernel import dead_letters

RAW: Final = dead_letters.RAW
REASON: Final = dead_letters.REASON
DETAIL: Final = dead_letters.DETAIL
UNDECODABLE: Final = "undecodable"
"""Reason of a record that no decoder can read."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Records as columns, and the undecodable records, with REASON and DETAIL."""

    rows: pl.DataFrame
    dead: pl.DataFrame


@runtime_checkable
class Decoder(Protocol):
    """Decodes batches of records. One undecodable record does not affect the others."""

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def types(self) -> Mapping[str, str]:
        """Return the type of each column, as DDL."""
        ...

    def decode(self, raw: pl.DataFrame) -> Decoded: ...


class Encoder(Protocol):
    """Encodes each row as one record."""

    def encode(self, rows: pl.DataFrame) -> pl.Series: ...


@runtime_checkable
class MaskingDecoder(Protocol):
    """A decoder that can mask fields inside a record's bytes."""

    def mask(self, value: bytes, fields: frozenset[str]) -> "Masked | None":
        """Return the record with these fields masked; None if it cannot be parsed and must be withheld as a whole."""
        ...


@dataclass(frozen=True, slots=True)
class Masked:
    """A record with masked fields, and the texts that were hidden."""

    value: bytes
    hidden: tuple[str, ...]
