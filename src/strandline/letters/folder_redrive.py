"""A folder of files takes records back as one more file, whose name is the redrive's: twice the same is once."""

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
"""The column that says which letter a row comes from, in files that have columns."""


@dataclass(frozen=True, slots=True)
class Folder:
    """Where the files of a source are, and what is in them: lines, or columns with their types."""

    name: str
    path: str
    format: str
    types: Mapping[str, str] | None
    """None where a record is a line."""
    pattern: str | None = None
    header: str | None = None

    def why_not(self, letters: pl.DataFrame) -> dict[str, str]:
        place = urlparse(self.path)
        if place.scheme not in ("", "file"):
            return dict.fromkeys(letters["id"], f"{self.path} is not a folder of this machine")
        if self.pattern is not None and not fnmatch(self._file("0"), self.pattern):
            return dict.fromkeys(letters["id"], f"the source reads files named {self.pattern} only")
        return {letter["id"]: why for letter in letters.iter_rows(named=True) if (why := self._why_not(letter))}

    def _why_not(self, letter: Mapping[str, Any]) -> str | None:
        if self.types is None:
            return None if letter["masked"] is None else "its bytes are not all here, and a line is not found again"
        row = self._row(letter)
        if row is None:
            return (
                "its bytes are not all here, and its row is not found again"
                if letter["masked"]
                else "it has no columns"
            )
        missing = sorted(self.types.keys() - row.keys())
        return f"a step has taken its column {missing[0]!r} away" if missing else None

    def standing(self, letters: pl.DataFrame) -> Any:  # noqa: ARG002 - a file's name tells whether it has arrived
        return None

    def take_back(
        self,
        letters: pl.DataFrame,
        redriven: Redrive,
        marks: Marks | None,  # noqa: ARG002 - a folder has no transactions
    ) -> tuple[str, ...]:
        fine = letters.filter(~pl.col("id").is_in(self.why_not(letters).keys()))
        once = fine.unique(["source_partition", "source_offset"], keep="first", maintain_order=True)
        path = Path(unquote(urlparse(self.path).path)) / self._file(redriven.id)
        try:
            # A file that has been read is not written again, not even with the same bytes.
            if fine.height and not path.exists():
                write_once(path, self._lines(once) if self.types is None else self._table(once, self.types), 0o644)
        except OSError as problem:
            raise SinkError(f"{self.path} does not take records back", detail=str(problem)) from None
        return tuple(fine["id"])

    def _file(self, redrive: str) -> str:
        suffix = Path(self.pattern or "").suffix or f".{self.format}"
        return f"redriven-{redrive}{suffix}"

    def _lines(self, letters: pl.DataFrame) -> bytes:
        lines = [] if self.header is None else [self.header.encode()]
        return b"".join(line + b"\n" for line in [*lines, *(raw or b"" for raw in letters["raw"])])

    def _table(self, letters: pl.DataFrame, types: Mapping[str, str]) -> bytes:
        shape = {name: to_polars(kind) for name, kind in types.items()}
        rows = [self._row(letter) or {} for letter in letters.iter_rows(named=True)]
        # What a row says is JSON, or a row of a file: both have the columns, in types that are read as these.
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
        """The row as it lies in its file, where that is known; else what the letter says of it."""
        found = _in_file(letter["source_partition"], letter["source_offset"])
        if found is not None:
            return found
        if letter["masked"] is not None or letter["raw"] is None:
            return None
        try:
            told = json.loads(letter["raw"])
        except ValueError:
            return None
        return told if isinstance(told, dict) else None


def _in_file(partition: str | None, offset: int | None) -> dict[str, Any] | None:
    place = urlparse(partition or "")
    path = Path(unquote(place.path))
    if place.scheme not in ("", "file") or path.suffix != ".parquet" or offset is None or not path.is_file():
        return None
    rows = pl.scan_parquet(path).slice(offset, 1).collect()
    return rows.row(0, named=True) if rows.height else None


def _time(name: str, kind: Any) -> pl.Expr:
    text = pl.col(name)
    if kind == pl.Date:
        return text.str.to_date(strict=False)
    return text.str.to_datetime(time_unit="us", time_zone="UTC", strict=False).cast(kind)
