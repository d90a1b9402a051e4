"""Parquet files that Python reads itself, where nothing else has to be done in Spark: some row groups in each task."""

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
"""Compressed; a task has its rows in memory as a whole."""
LEAST_PER_TASK: Final = 2**20
"""Below this a task costs more than it reads."""

_SIMPLE: Final = frozenset({
    "string", "byte", "tinyint", "short", "smallint", "int", "integer", "long", "bigint", "float", "double", "boolean",
    "timestamp", "date",
})  # fmt: skip

BYTES_AT_ONCE: Final = 64 * 2**20
"""Compressed; what a task reads at a time of files that somebody else chose for it."""

Piece = tuple[str, int, int]
"""A file's URI, and of its row groups or bytes the first and the one after the last; all of them if that is 0."""


def pieces_of(folder: str, columns: str, uris: Sequence[str]) -> list[list[Piece]] | None:
    """What each task is to read; None where Spark reads better."""
    home = readable(folder, columns)
    if home is None:
        return None
    paths = {uri: place_of(uri) for uri in uris}
    if any(path is None or path.parent != home for path in paths.values()):
        return None
    sizes = {uri: path.stat().st_size for uri, path in paths.items() if path is not None}
    # Two tasks for each core at least, so that none waits long for the last one.
    share = max(sum(sizes.values()) // (2 * (os.cpu_count() or 1)), LEAST_PER_TASK)
    most = min(share, BYTES_PER_TASK)
    return together([each for uri, size in sizes.items() for each in _divided(uri, size, most)], most)


def readable(folder: str, columns: str) -> Path | None:
    """The folder, if Python can read its files; not types that the two might take differently."""
    return here(folder) if set(parse(columns).values()) <= _SIMPLE else None


def here(folder: str) -> Path | None:
    """The folder, if it is on this machine and one alone: no other file system, nor folders that tell columns."""
    if "://" in folder.removeprefix("file://"):
        return None
    home = Path(folder.removeprefix("file://")).absolute()
    if any(sign in folder for sign in "*?[{") or not home.is_dir():
        return None
    return None if any("=" in each.name and each.is_dir() for each in home.iterdir()) else home


def _divided(uri: str, size: int, most: int) -> list[tuple[Piece, int]]:
    """A file as a whole, or if it is long, each of its row groups; with their sizes."""
    if size <= most:
        return [((uri, 0, 0), size)]
    footer = pq.read_metadata(place_of(uri))
    share = size // max(footer.num_row_groups, 1)
    return [((uri, number, number + 1), share) for number in range(footer.num_row_groups)]


def together(found: Sequence[tuple[Piece, int]], most: int) -> list[list[Piece]]:
    """Pieces by the task that reads them: as many in each as are not too much."""
    tasks: list[list[Piece]] = []
    filled = most
    for piece, size in found:
        if not tasks or filled + size > most:
            tasks.append([])
            filled = 0
        tasks[-1].append(piece)
        filled += size
    return tasks


def place_of(uri: str) -> Path | None:
    """Where a file is on this machine; None if it is not."""
    parts = urlsplit(uri)
    return Path(unquote(parts.path)) if parts.scheme in ("", "file") else None


def read_pieces(pieces: Sequence[Piece], columns: str) -> pl.DataFrame:
    """Rows with these columns, null where a file lacks one; each knows its file and its number there."""
    return pl.concat([_explained(piece, columns) for piece in pieces], how="vertical")


def read_files(uris: Sequence[str], columns: str) -> Iterator[pl.DataFrame]:
    """Rows of whole files, some at a time."""
    pieces = [each for uri in uris for each in _divided(uri, _size(uri), BYTES_AT_ONCE)]
    for some in together(pieces, BYTES_AT_ONCE):
        yield read_pieces(some, columns)


def _size(uri: str) -> int:
    """None at all if it is gone, which whoever reads it will notice."""
    path = place_of(uri)
    return path.stat().st_size if path is not None and path.exists() else 0


def _explained(piece: Piece, columns: str) -> pl.DataFrame:
    try:
        return _read(piece, columns)
    except (pa.ArrowException, pl.exceptions.PolarsError, OSError) as problem:
        told = str(problem).partition("\n")[0]
        raise RunError(f"the file {piece[0]} cannot be read", detail=told, hint="take it away, or mend it") from None


def _read(piece: Piece, columns: str) -> pl.DataFrame:
    uri, first, end = piece
    with pq.ParquetFile(place_of(uri)) as file:
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
    """A column as Spark would hand it over: a time without a zone is one in UTC."""
    if name not in known:
        return pl.lit(None, kind).alias(name)
    mine = pl.col(name)
    if isinstance(known[name], pl.Datetime) and known[name].time_zone is None and kind != known[name]:
        mine = mine.dt.replace_time_zone("UTC")
    return mine.cast(kind)
