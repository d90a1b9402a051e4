"""Lines of files as records: what is no record is passed over, a header is checked, the rest is the format's."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from strandline.errors import RunError
from strandline.formats.undecodable_records import Complaint, dead_letters
from strandline.kernel.blocks.block import OFFSET, PARTITION
from strandline.ports.codecs import RAW, Decoded, Decoder, Masked, MaskingDecoder
from strandline.ports.raw_records import SPLIT

_BYTE_ORDER_MARK: Final = "\ufeff"
_SHOWN: Final = 100


@dataclass(frozen=True, slots=True)
class Header:
    """The first line of every file: the names of the columns, in their order."""

    names: tuple[str, ...]
    delimiter: str

    def problem(self, line: bytes) -> str | None:
        """What is wrong with a line that should be the header; None if it is one."""
        text = line.decode(errors="replace").removeprefix(_BYTE_ORDER_MARK).rstrip("\r\n")
        found = [name.strip() for name in next(csv.reader([text], delimiter=self.delimiter), [])]
        if found == [*self.names]:
            return None
        return f"the header of its file says {self.delimiter.join(found)[:_SHOWN]!r}, not {', '.join(self.names)}"


@dataclass(frozen=True, slots=True)
class Lines:
    """A format whose records are lines. Lines without a sign are no records, unless the format reads any line."""

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
        decoded = self.of.decode(lines)
        return decoded if misread is None else replace(decoded, dead=pl.concat([decoded.dead, misread]))

    def _below_header(
        self, header: Header, lines: pl.DataFrame, split: pl.Series | None
    ) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """The lines below a header that is right; those of a file with a wrong one are all set aside."""
        problems: dict[str, str] = {}
        for place in (lines[OFFSET] == 0).arg_true():
            problem = header.problem(lines[place, RAW])
            if problem is None:
                continue
            if split is not None and split[place]:
                raise RunError(
                    f"{problem}: {lines[place, PARTITION]}",
                    detail="it is read in blocks, and those further down cannot be told",
                    hint="put a file with the right header in its place",
                )
            problems[lines[place, PARTITION]] = problem
        below = lines.filter(pl.col(OFFSET) > 0)
        if not problems:
            return below, None
        wrong = lines.filter(pl.col(PARTITION).is_in([*problems]))
        told = dead_letters(wrong, {at: Complaint(problems[name]) for at, name in enumerate(wrong[PARTITION])})
        return below.filter(~pl.col(PARTITION).is_in([*problems])), told
