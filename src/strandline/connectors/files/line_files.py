"""Files of lines that Python reads itself, in blocks of whole lines, where nothing else has to be done in Spark."""

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
from strandline.connectors.files.parquet_splits import LEAST_PER_TASK, Piece, here, place_of, together
from strandline.errors import RunError
from strandline.kernel.blocks.binary_views import LONGEST
from strandline.ports.raw_records import RECORD, SPLIT

BYTES_AT_ONCE: Final = 64 * 2**20
"""What a task reads at a time."""
LONGEST_FILE: Final = 128 * 2**20
"""Longer ones Spark divides among tasks, and reads them better where they come one by one."""
_LOOKED_AT: Final = 2**16
_PACKED: Final = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_LEFT_TO_SPARK: Final = (".deflate", ".snappy", ".lz4")
"""What Hadoop takes for packed as well, each in a way of its own."""
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Part:
    """Lines of a file, one after the other."""

    uri: str
    first: int
    """The number of the first one, which is greater than that of any line before."""
    lines: pl.Series
    bytes: int
    is_one_of_several: bool = False
    """Whether a file is read in several; not told of pieces, which have no header to know of."""


def lines_here(folder: str, pattern: str | None) -> bool:
    """Whether Python reads the folder as well as Spark does: not if a file is long, or packed in a rare way."""
    home = here(folder)
    if home is None:
        return False
    with os.scandir(home) as found:
        return not any(_is_left(each) for each in found if _fits(each.name, pattern))


def _fits(name: str, pattern: str | None) -> bool:
    """Whether Spark may list a file of this name."""
    return not name.startswith(("_", ".")) and (pattern is None or "{" in pattern or fnmatchcase(name, pattern))


def _is_left(entry: "os.DirEntry[str]") -> bool:
    return entry.name.endswith(_LEFT_TO_SPARK) or (entry.is_file() and entry.stat().st_size > LONGEST_FILE)


def read_lines(uris: Sequence[str]) -> Iterator[pl.DataFrame]:
    """Records of whole files, some at a time, under the columns of a stream of records."""
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
    """What each task is to read: of long files, from one byte to another; None where Spark reads better."""
    home = here(folder)
    paths = {uri: path for uri in uris if (path := place_of(uri)) is not None and path.parent == home}
    if len(paths) < len(uris) or any(path.name.endswith(_LEFT_TO_SPARK) for path in paths.values()):
        return None
    sizes = [(uri, path.stat().st_size) for uri, path in paths.items()]
    share = max(sum(size for _, size in sizes) // (2 * (os.cpu_count() or 1)), LEAST_PER_TASK)
    most = min(share, BYTES_AT_ONCE)
    return together([each for uri, size in sizes for each in _divided(uri, size, most, divisible=divisible)], most)


def _divided(uri: str, size: int, most: int, *, divisible: bool) -> list[tuple[Piece, int]]:
    if size <= most or not divisible or uri.endswith((*_PACKED,)):
        return [((uri, 0, 0), size)]
    starts = range(0, size, most)
    return [((uri, start, min(start + most, size)), min(most, size - start)) for start in starts]


def read_line_pieces(pieces: Sequence[Piece]) -> pl.DataFrame:
    """Records of pieces, under the columns of a stream of records."""
    return records([part for piece in pieces for part in (_parts(piece[0]) if not piece[2] else [_range(*piece)])])


def records(parts: Sequence[Part]) -> pl.DataFrame:
    """Lines as records, each with its file and its number there."""
    many = np.array([len(part.lines) for part in parts], np.int64)
    before = np.cumsum(many) - many
    first = np.array([part.first for part in parts], np.int64)
    number = np.arange(many.sum()) + np.repeat(first - before, many)
    mine = np.repeat(np.arange(len(parts)), many)
    # As Spark writes a name in a row.
    names = pl.Series([part.uri.replace("file:///", "file:/", 1) for part in parts], dtype=pl.String)
    found = pl.DataFrame(
        {
            "partition": names.gather(mine),
            "offset": pl.Series(number, dtype=pl.Int64),
            "value": pl.concat([pl.Series([], dtype=pl.Binary), *(part.lines for part in parts)]).rechunk(),
            "mark": pl.repeat(RECORD, len(number), dtype=pl.Int32, eager=True),
        }
    )
    if not any(part.is_one_of_several for part in parts):
        return found
    return found.with_columns(pl.Series(SPLIT, [part.is_one_of_several for part in parts]).gather(mine))


def _parts(uri: str) -> Iterator[Part]:
    """A file from its beginning to its end."""
    first = 0
    try:
        with _opened(uri) as file:
            for block, is_all in _blocks(file):
                lines = as_lines(block.removeprefix(_BYTE_ORDER_MARK) if first == 0 else block)
                yield Part(uri, first, lines, len(block), not is_all)
                first += len(lines)
    except OSError as problem:
        raise _unreadable(uri, problem) from None


def _range(uri: str, start: int, end: int) -> Part:
    """The lines of a file that begin from one byte up to another."""
    try:
        with _opened(uri) as file:
            begins, ends = _line_at(file, start), _line_at(file, end)
            if ends - begins > LONGEST:
                raise OSError(f"a line of about {ends - begins:,} bytes")
            file.seek(begins)
            block = file.read(ends - begins)
    except OSError as problem:
        raise _unreadable(uri, problem) from None
    return Part(uri, start, as_lines(block.removeprefix(_BYTE_ORDER_MARK) if begins == 0 else block), len(block))


def _opened(uri: str) -> IO[bytes]:
    path = cast("Path", place_of(uri))
    if path.name.endswith(_LEFT_TO_SPARK):
        raise RunError(
            f"the file {uri} came later, and is packed in a way that only Spark reads",
            detail="there was none such when the job started, which reads files without Spark since then",
            hint="start the job again: it goes on where it was, and Spark reads the folder",
        )
    how = _PACKED.get(path.suffix)
    return path.open("rb") if how is None else cast("IO[bytes]", pa.input_stream(path, how))


def _unreadable(uri: str, problem: Exception) -> RunError:
    told = str(problem).partition("\n")[0]
    return RunError(f"the file {uri} cannot be read", detail=told, hint="take it away, or mend it")


def _blocks(file: IO[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Whole lines, about as much at a time as is read at once; and whether that is all."""
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
    """Where the line begins that goes on after the block; 0 if that is its only one."""
    # A return at the very end may be half of what ends a line.
    return block.rfind(b"\n") + 1 or block.rfind(b"\r", 0, len(block) - 1) + 1


def _line_at(file: IO[bytes], place: int) -> int:
    """Where the first line begins that does not begin before this place; the end, if there is none."""
    if place == 0:
        return 0
    at = file.seek(place - 1)
    while chunk := file.read(_LOOKED_AT):
        signs = np.frombuffer(chunk, np.uint8)
        ends = ends_of(signs)
        # A return at the very end may be half of what ends a line: it is looked at again, with what follows.
        sure = ends[(ends < len(chunk) - 1) | (signs[ends] == NEWLINE)]
        if len(sure):
            return at + int(sure[0]) + 1
        half = len(ends) and len(chunk) > 1
        at = file.seek(-1, os.SEEK_CUR) if half else at + len(chunk)
    return at
