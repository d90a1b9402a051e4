"""Read line files in Python, in blocks of whole lines, when Spark has nothing else to do with them."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Final, cast

import numpy as np
import polars as pl
import pyarrow as pa

from strandline.connectors.files.line_views import NEWLINE, as_lines, ends_of
from strandline.connectors.files.parquet_splits import LEAST_PER_TASK, Piece, group_pieces, local_folder, local_path
from strandline.errors import RunError
from strandline.kernel.blocks.binary_views import LONGEST
from strandline.ports.raw_records import RECORD, SPLIT

BYTES_AT_ONCE: Final = 64 * 2**20
"""Bytes that a task reads at once."""
LONGEST_FILE: Final = 128 * 2**20
"""Spark divides longer files among tasks, and reads them better when they arrive one by one."""
_SCAN_BYTES: Final = 2**16
_COMPRESSED: Final = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_SPARK_ONLY: Final = (".deflate", ".snappy", ".lz4")
"""Suffixes of other compressed files, each of which Hadoop reads in its own way."""
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive lines of a file."""

    uri: str
    first: int
    """The number of the first line, greater than that of any line before."""
    lines: pl.Series
    bytes: int
    is_one_of_several: bool = False
    """Whether the file is read in several parts; not set for pieces, which have no header to check."""


def can_read_lines(folder: str, pattern: str | None) -> bool:
    """Whether Python reads the folder as well as Spark does; False if a file is long, or compressed in a rare way."""
    home = local_folder(folder)
    if home is None:
        return False
    with os.scandir(home) as found:
        return not any(_needs_spark(each) for each in found if _may_be_listed(each.name, pattern))


def _may_be_listed(name: str, pattern: str | None) -> bool:
    """Whether Spark may list a file of this name."""
    return not name.startswith(("_", ".")) and (pattern is None or "{" in pattern or fnmatchcase(name, pattern))


def _needs_spark(entry: "os.DirEntry[str]") -> bool:
    return entry.name.endswith(_SPARK_ONLY) or (entry.is_file() and entry.stat().st_size > LONGEST_FILE)


def read_lines(uris: Sequence[str]) -> Iterator[pl.DataFrame]:
    """Read whole files in blocks, with the columns of a record stream."""
    held: list[Part] = []
    filled = 0
    for part in (part for uri in uris for part in _parts(uri)):
        held.append(part)
        filled += part.bytes
        if filled >= BYTES_AT_ONCE:
            yield records(held)
            held, filled = [], 0
    if held:
        yield records(held)


def line_pieces(folder: str, uris: Sequence[str], *, divisible: bool) -> list[list[Piece]] | None:
    """Divide files among tasks, long ones by byte range; None where Spark reads better."""
    home = local_folder(folder)
    paths = {uri: path for uri in uris if (path := local_path(uri)) is not None and path.parent == home}
    if len(paths) < len(uris) or any(path.name.endswith(_SPARK_ONLY) for path in paths.values()):
        return None
    sizes = [(uri, path.stat().st_size) for uri, path in paths.items()]
    share = max(sum(size for _, size in sizes) // (2 * (os.cpu_count() or 1)), LEAST_PER_TASK)
    most = min(share, BYTES_AT_ONCE)
    return group_pieces([each for uri, size in sizes for each in _divided(uri, size, most, divisible=divisible)], most)


def _divided(uri: str, size: int, most: int, *, divisible: bool) -> list[tuple[Piece, int]]:
    if size <= most or not divisible or uri.endswith((*_COMPRESSED,)):
        return [((uri, 0, 0), size)]
    starts = range(0, size, most)
    return [((uri, start, min(start + most, size)), min(most, size - start)) for start in starts]


def read_line_pieces(pieces: Sequence[Piece]) -> pl.DataFrame:
    """Read pieces, with the columns of a record stream."""
    return records([part for piece in pieces for part in (_parts(piece[0]) if not piece[2] else [_range(*piece)])])


def records(parts: Sequence[Part]) -> pl.DataFrame:
    """Build records from lines, each with its file and its number there."""
    counts = np.array([len(part.lines) for part in parts], np.int64)
    before = np.cumsum(counts) - counts
    first = np.array([part.first for part in parts], np.int64)
    number = np.arange(counts.sum()) + np.repeat(first - before, counts)
    part_of_row = np.repeat(np.arange(len(parts)), counts)
    # Spark writes a file's URI in a row like this.
    names = pl.Series([part.uri.replace("file:///", "file:/", 1) for part in parts], dtype=pl.String)
    found = pl.DataFrame(
        {
            "partition": names.gather(part_of_row),
            "offset": pl.Series(number, dtype=pl.Int64),
            "value": pl.concat([pl.Series([], dtype=pl.Binary), *(part.lines for part in parts)]).rechunk(),
            "mark": pl.repeat(RECORD, len(number), dtype=pl.Int32, eager=True),
        }
    )
    if not any(part.is_one_of_several for part in parts):
        return found
    return found.with_columns(pl.Series(SPLIT, [part.is_one_of_several for part in parts]).gather(part_of_row))


def _parts(uri: str) -> Iterator[Part]:
    """Read a file from its beginning to its end."""
    first = 0
    try:
        with _open(uri) as file:
            for block, is_all in _blocks(file):
                lines = as_lines(block.removeprefix(_BYTE_ORDER_MARK) if first == 0 else block)
                yield Part(uri, first, lines, len(block), not is_all)
                first += len(lines)
    except OSError as problem:
        raise _unreadable_file(uri, problem) from None


def _range(uri: str, start: int, end: int) -> Part:
    """Read the lines that begin in a byte range of a file."""
    try:
        with _open(uri) as file:
            begins, ends = _line_at(file, start), _line_at(file, end)
            if ends - begins > LONGEST:
                raise OSError(f"a line of about {ends - begins:,} bytes")
            file.seek(begins)
            block = file.read(ends - begins)
    except OSError as problem:
        raise _unreadable_file(uri, problem) from None
    return Part(uri, start, as_lines(block.removeprefix(_BYTE_ORDER_MARK) if begins == 0 else block), len(block))


def _open(uri: str) -> IO[bytes]:
    path = cast("Path", local_path(uri))
    if path.name.endswith(_SPARK_ONLY):
        raise RunError(
            f"the file {uri} has a compression that only Spark reads",
            detail="the folder had no such file when the job started, so the job reads it without Spark",
            hint="restart the job: it continues where it was, and Spark reads the folder",
        )
    how = _COMPRESSED.get(path.suffix)
    return path.open("rb") if how is None else cast("IO[bytes]", pa.input_stream(path, how))


def _unreadable_file(uri: str, problem: Exception) -> RunError:
    detail = str(problem).partition("\n")[0]
    return RunError(f"the file {uri} cannot be read", detail=detail, hint="remove or repair it")


def _blocks(file: IO[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Split a file into blocks of whole lines; yield each with whether it is the whole file."""
    left, is_all = b"", True
    while chunk := file.read(BYTES_AT_ONCE):
        left += chunk
        if len(chunk) < BYTES_AT_ONCE:
            break
        end = _last_line(left)
        if end:
            yield left[:end], False
            left, is_all = left[end:], False
        elif len(left) + BYTES_AT_ONCE > LONGEST:
            raise OSError(f"a line of more than {len(left):,} bytes")
    if left:
        yield left, is_all


def _last_line(block: bytes) -> int:
    """The start of the line that continues after the block; 0 if the block has no other line."""
    # A carriage return at the very end may be half of a line end.
    return block.rfind(b"\n") + 1 or block.rfind(b"\r", 0, len(block) - 1) + 1


def _line_at(file: IO[bytes], place: int) -> int:
    """The start of the first line that begins at or after this position; the file's end if there is none."""
    if place == 0:
        return 0
    at = file.seek(place - 1)
    while chunk := file.read(_SCAN_BYTES):
        chars = np.frombuffer(chunk, np.uint8)
        ends = ends_of(chars)
        # A carriage return at the very end may be half of a line end: it is read again with what follows.
        complete = ends[(ends < len(chunk) - 1) | (chars[ends] == NEWLINE)]
        if len(complete):
            return at + int(complete[0]) + 1
        split_line_end = len(ends) and len(chunk) > 1
        at = file.seek(-1, os.SEEK_CUR) if split_line_end else at + len(chunk)
    return at
