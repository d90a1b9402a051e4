"""Read Parquet files in Python, some row groups per task, when Spark has nothing else to do with them."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import unquote, urlsplit

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from strandline.errors import RunError
from strandline.kernel.blocks.block import OFFSET, PARTITION
from strandline.kernel.blocks.column_types import to_polars
from strandline.model.ddl import parse

BYTES_PER_TASK: Final = 24 * 2**20
"""Compressed bytes per task; a task has its rows in memory as a whole."""
LEAST_PER_TASK: Final = 2**20
"""Below this a task costs more than it reads."""

_SIMPLE: Final = frozenset({
    "string", "byte", "tinyint", "short", "smallint", "int", "integer", "long", "bigint", "float", "double", "boolean",
    "timestamp", "date",
})  # fmt: skip

BYTES_AT_ONCE: Final = 64 * 2**20
"""Compressed bytes that a task reads at once from files that Spark assigned to it."""

Piece = tuple[str, int, int]
"""A file's URI and its first and end row group or byte; the whole file if the end is 0."""


def pieces_of(folder: str, columns: str, uris: Sequence[str]) -> list[list[Piece]] | None:
    """Divide files among tasks; None where Spark reads better."""
    home = readable(folder, columns)
    if home is None:
        return None
    paths = {uri: local_path(uri) for uri in uris}
    if any(path is None or path.parent != home for path in paths.values()):
        return None
    sizes = {uri: path.stat().st_size for uri, path in paths.items() if path is not None}
    # At least two tasks per core, so that no core waits long for the last task.
    share = max(sum(sizes.values()) // (2 * (os.cpu_count() or 1)), LEAST_PER_TASK)
    most = min(share, BYTES_PER_TASK)
    return group_pieces([each for uri, size in sizes.items() for each in _divided(uri, size, most)], most)


def readable(folder: str, columns: str) -> Path | None:
    """The folder if Python can read its files; None if it has types that Spark might read differently."""
    return local_folder(folder) if set(parse(columns).values()) <= _SIMPLE else None


def local_folder(folder: str) -> Path | None:
    """The folder if it is a single local one without partition columns; else None."""
    if "://" in folder.removeprefix("file://"):
        return None
    home = Path(folder.removeprefix("file://")).absolute()
    if any(sign in folder for sign in "*?[{") or not home.is_dir():
        return None
    return None if any("=" in each.name and each.is_dir() for each in home.iterdir()) else home


def _divided(uri: str, size: int, most: int) -> list[tuple[Piece, int]]:
    """Divide a long file into its row groups; return pieces with their sizes."""
    if size <= most:
        return [((uri, 0, 0), size)]
    footer = pq.read_metadata(local_path(uri))
    share = size // max(footer.num_row_groups, 1)
    return [((uri, number, number + 1), share) for number in range(footer.num_row_groups)]


def group_pieces(found: Sequence[tuple[Piece, int]], most: int) -> list[list[Piece]]:
    """Group pieces into tasks up to a size."""
    tasks: list[list[Piece]] = []
    filled = most
    for piece, size in found:
        if not tasks or filled + size > most:
            tasks.append([])
            filled = 0
        tasks[-1].append(piece)
        filled += size
    return tasks


def local_path(uri: str) -> Path | None:
    """The local path of a URI; None if it is not on this machine."""
    parts = urlsplit(uri)
    return Path(unquote(parts.path)) if parts.scheme in ("", "file") else None


def read_pieces(pieces: Sequence[Piece], columns: str) -> pl.DataFrame:
    """Read rows with these columns, null where a file lacks one, with their file and row number."""
    return pl.concat([_read_or_fail(piece, columns) for piece in pieces], how="vertical")


def read_files(uris: Sequence[str], columns: str) -> Iterator[pl.DataFrame]:
    """Read whole files in groups."""
    pieces = [each for uri in uris for each in _divided(uri, _size(uri), BYTES_AT_ONCE)]
    for some in group_pieces(pieces, BYTES_AT_ONCE):
        yield read_pieces(some, columns)


def _size(uri: str) -> int:
    """The file's size; 0 if it was deleted, which its reader will report."""
    path = local_path(uri)
    return path.stat().st_size if path is not None and path.exists() else 0


def _read_or_fail(piece: Piece, columns: str) -> pl.DataFrame:
    try:
        return _read(piece, columns)
    except (pa.ArrowException, pl.exceptions.PolarsError, OSError) as problem:
        detail = str(problem).partition("\n")[0]
        raise RunError(f"the file {piece[0]} cannot be read", detail=detail, hint="remove or repair it") from None


def _read(piece: Piece, columns: str) -> pl.DataFrame:
    uri, first, end = piece
    with pq.ParquetFile(local_path(uri)) as file:
        groups = range(first, end or file.num_row_groups)
        known = [name for name in parse(columns) if name in file.schema_arrow.names]
        before = sum(file.metadata.row_group(number).num_rows for number in range(first))
        rows = cast("pl.DataFrame", pl.from_arrow(file.read_row_groups([*groups], known, use_threads=False)))
    wanted = {name: to_polars(kind) for name, kind in parse(columns).items()}
    return rows.select(
        *(_as(name, kind, rows.schema) for name, kind in wanted.items()),
        pl.lit(uri.replace("file:///", "file:/", 1)).alias(PARTITION),  # as Spark writes it in a row
        pl.int_range(before, before + pl.len(), dtype=pl.Int64).alias(OFFSET),
    )


def _as(name: str, kind: Any, known: Any) -> pl.Expr:
    """Cast a column as Spark would: a time without a zone is in UTC."""
    if name not in known:
        return pl.lit(None, kind).alias(name)
    column = pl.col(name)
    if isinstance(known[name], pl.Datetime) and known[name].time_zone is None and kind != known[name]:
        column = column.dt.replace_time_zone("UTC")
    return column.cast(kind)
