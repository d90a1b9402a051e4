"""Decode lines of files as records: skip empty lines, check the header, and pass the rest to the format."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from strandline.errors import RunError
from strandline.formats.undecodable_records import DecodeProblem, dead_letters
from strandline.kernel.blocks.block import OFFSET, PARTITION
from strandline.ports.codecs import RAW, Decoded, Decoder, Masked, MaskingDecoder
from strandline.ports.raw_records import SPLIT

_BYTE_ORDER_MARK: Final = "\ufeff"
_SHOWN: Final = 100


@dataclass(frozen=True, slots=True)
class Header:
    """The expected first line of every file: the column names in their order."""

    names: tuple[str, ...]
    delimiter: str

    def problem(self, line: bytes) -> str | None:
        """Describe what is wrong with a header line; None if it is right."""
        text = line.decode(errors="replace").removeprefix(_BYTE_ORDER_MARK).rstrip("\r\n")
        found = [name.strip() for name in next(csv.reader([text], delimiter=self.delimiter), [])]
        if found == [*self.names]:
            return None
        return f"the file's header is {self.delimiter.join(found)[:_SHOWN]!r}, expected {', '.join(self.names)}"


@dataclass(frozen=True, slots=True)
class Lines:
    """A format whose records are lines. Empty lines are skipped, unless the format accepts any line."""

    of: Decoder
    header: Header | None = None
    blank: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return self.of.columns

    @property
    def types(self) -> Mapping[str, str]:
        return self.of.types

    def mask(self, value: bytes, fields: frozenset[str]) -> Masked | None:
        return self.of.mask(value, fields) if isinstance(self.of, MaskingDecoder) else None

    def decode(self, raw: pl.DataFrame) -> Decoded:
        split = raw[SPLIT] if SPLIT in raw.columns else None
        lines, misread = raw.drop(SPLIT, strict=False), None
        if self.header is not None:
            lines, misread = self._below_header(self.header, lines, split)
        if not self.blank:
            lines = lines.filter(pl.col(RAW).bin.size() > 0)
        decode_file = self.of.decode(lines)
        return decode_file if misread is None else replace(decode_file, dead=pl.concat([decode_file.dead, misread]))

    def _below_header(
        self, header: Header, lines: pl.DataFrame, split: pl.Series | None
    ) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """The lines below correct headers; every line of a file with a wrong header is dead-lettered."""
        problems: dict[str, str] = {}
        for place in (lines[OFFSET] == 0).arg_true():
            problem = header.problem(lines[place, RAW])
            if problem is None:
                continue
            if split is not None and split[place]:
                raise RunError(
                    f"{problem}: {lines[place, PARTITION]}",
                    detail="the file is read in blocks, so its other lines cannot be dead-lettered",
                    hint="replace it by a file with the right header",
                )
            problems[lines[place, PARTITION]] = problem
        rows = lines.filter(pl.col(OFFSET) > 0)
        if not problems:
            return rows, None
        wrong = lines.filter(pl.col(PARTITION).is_in([*problems]))
        letters = dead_letters(wrong, {at: DecodeProblem(problems[name]) for at, name in enumerate(wrong[PARTITION])})
        return rows.filter(~pl.col(PARTITION).is_in([*problems])), letters
