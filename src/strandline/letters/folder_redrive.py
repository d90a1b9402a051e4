"""Redrive dead letters to a folder source as one more file, named after the redrive, so that repeating it has no
effect."""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlparse

import polars as pl
from pyarrow import orc

from strandline.errors import SinkError
from strandline.kernel.blocks.column_types import to_polars
from strandline.letters.store import Marks, Redrive
from strandline.ports.durable_files import write_once

LETTER: Final = "strandline_letter"
"""The column that holds a row's letter id, in files with columns."""


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder of a source, and its contents: lines, or typed columns."""

    name: str
    path: str
    format: str
    types: Mapping[str, str] | None
    """None if a record is a line."""
    pattern: str | None = None
    header: str | None = None

    def not_redrivable(self, letters: pl.DataFrame) -> dict[str, str]:
        place = urlparse(self.path)
        if place.scheme not in ("", "file"):
            return dict.fromkeys(letters["id"], f"{self.path} is not a folder on this machine")
        if self.pattern is not None and not fnmatch(self._file("0"), self.pattern):
            return dict.fromkeys(letters["id"], f"the source reads files named {self.pattern} only")
        return {letter["id"]: why for letter in letters.iter_rows(named=True) if (why := self._obstacle(letter))}

    def _obstacle(self, letter: Mapping[str, Any]) -> str | None:
        if self.types is None:
            return None if letter["masked"] is None else "its bytes are masked or cut, and a line cannot be found again"
        row = self._row(letter)
        if row is None:
            return (
                "its bytes are masked or cut, and its row cannot be found again"
                if letter["masked"]
                else "it has no columns"
            )
        missing = sorted(self.types.keys() - row.keys())
        return f"a step has removed its column {missing[0]!r}" if missing else None

    def end_positions(self, letters: pl.DataFrame) -> Any:  # noqa: ARG002 - a file's name shows whether it has arrived
        return None

    def redrive_records(
        self,
        letters: pl.DataFrame,
        redriven: Redrive,
        marks: Marks | None,  # noqa: ARG002 - a folder has no transactions
    ) -> tuple[str, ...]:
        sendable = letters.filter(~pl.col("id").is_in(self.not_redrivable(letters).keys()))
        once = sendable.unique(["source_partition", "source_offset"], keep="first", maintain_order=True)
        path = Path(unquote(urlparse(self.path).path)) / self._file(redriven.id)
        try:
            # A file that has been read is not written again, not even with the same bytes.
            if sendable.height and not path.exists():
                write_once(path, self._lines(once) if self.types is None else self._table(once, self.types), 0o644)
        except OSError as problem:
            raise SinkError(f"{self.path} cannot be written", detail=str(problem)) from None
        return tuple(sendable["id"])

    def _file(self, redrive: str) -> str:
        suffix = Path(self.pattern or "").suffix or f".{self.format}"
        return f"redriven-{redrive}{suffix}"

    def _lines(self, letters: pl.DataFrame) -> bytes:
        lines = [] if self.header is None else [self.header.encode()]
        return b"".join(line + b"\n" for line in [*lines, *(raw or b"" for raw in letters["raw"])])

    def _table(self, letters: pl.DataFrame, types: Mapping[str, str]) -> bytes:
        shape = {name: to_polars(kind) for name, kind in types.items()}
        rows = [self._row(letter) or {} for letter in letters.iter_rows(named=True)]
        # A row comes from JSON or from a file: both have the columns, in types that parse as these.
        texts = pl.Series(
            [json.dumps({name: row[name] for name in shape}, default=str) for row in rows], dtype=pl.String
        )
        written = {name: pl.String if kind.is_temporal() else kind for name, kind in shape.items()}
        found = texts.str.json_decode(pl.Struct(written)).struct.unnest()
        times = [_time(name, kind) for name, kind in shape.items() if kind.is_temporal()]
        whole = found.with_columns(times).with_columns(letters["id"].alias(LETTER))
        file = io.BytesIO()
        if self.format == "orc":
            orc.write_table(whole.to_arrow(compat_level=pl.CompatLevel.oldest()), file)
        else:
            whole.write_parquet(file)
        return file.getvalue()

    def _row(self, letter: Mapping[str, Any]) -> dict[str, Any] | None:
        """The row from its file if that still exists, otherwise from the letter."""
        found = self._in_file(letter["source_partition"], letter["source_offset"])
        if found is not None:
            return found
        if letter["masked"] is not None or letter["raw"] is None:
            return None
        try:
            row = json.loads(letter["raw"])
        except ValueError:
            return None
        return row if isinstance(row, dict) else None

    def _in_file(self, partition: str | None, offset: int | None) -> dict[str, Any] | None:
        """Read a row from its file, if that lies in the source's folder: a letter may name any path."""
        place = urlparse(partition or "")
        path, folder = Path(unquote(place.path)), Path(unquote(urlparse(self.path).path))
        if place.scheme not in ("", "file") or path.suffix != ".parquet" or offset is None or offset < 0:
            return None
        if not path.resolve().is_relative_to(folder.resolve()) or not path.is_file():
            return None
        rows = pl.scan_parquet(path, glob=False).slice(offset, 1).collect()
        return rows.row(0, named=True) if rows.height else None


def _time(name: str, kind: Any) -> pl.Expr:
    text = pl.col(name)
    if kind == pl.Date:
        return text.str.to_date(strict=False)
    return text.str.to_datetime(time_unit="us", time_zone="UTC", strict=False).cast(kind)
