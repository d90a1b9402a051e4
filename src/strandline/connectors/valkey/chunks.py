"""Split a batch into chunks that the server applies one at a time, small enough not to delay other clients."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import polars as pl

ROWS: Final = 5_000
"""Rows per chunk. The server is blocked while it applies one: about ten milliseconds."""
BYTES: Final = 8 * 1024 * 1024
"""Bytes per chunk, unless a single row has more."""

KEY, VALUE, NUMBER = "key", "value", "number"
_NONE: Final = pl.DataFrame(schema={KEY: pl.String, VALUE: pl.String, NUMBER: pl.Int64})


def empty_pairs() -> pl.DataFrame:
    """Return an empty frame of keys, values and row numbers in the batch."""
    return _NONE


@dataclass(frozen=True, slots=True)
class Part:
    """Rows to write and rows to delete, by key; late elements and dead letters, one line each."""

    expiry: str = ""
    rows: pl.DataFrame = field(default_factory=empty_pairs)
    gone: pl.DataFrame = field(default_factory=empty_pairs)
    late: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()

    def to_texts(self) -> tuple[str, str, str, str, str]:
        """Serialize for the server's script."""
        return self.expiry, _alternating(self.rows), _alternating(self.gone), _lines(self.late), _lines(self.dead)

    def without(self, rows: Iterable[int]) -> "Part":
        """Remove rows by their position."""
        positions = pl.Series(list(rows), dtype=pl.Int64)
        return replace(self, rows=self.rows.filter(~pl.int_range(pl.len()).is_in(positions.implode())))

    def cut(self) -> list["Part"]:
        """Split into small chunks of one kind each; a small part stays whole."""
        if self._count() <= ROWS and self._size() <= BYTES:
            return [self]
        return [
            *(Part(self.expiry, rows=each) for each in _cut(self.rows)),
            *(Part(gone=each) for each in _cut(self.gone)),
            *(Part(late=each) for each in _cut_lines(self.late)),
            *(Part(dead=each) for each in _cut_lines(self.dead)),
        ]

    def _count(self) -> int:
        return self.rows.height + self.gone.height + len(self.late) + len(self.dead)

    def _size(self) -> int:
        lines = sum(map(len, self.late)) + sum(map(len, self.dead))
        return lines + sum(int(_sizes(each).sum()) for each in (self.rows, self.gone))


def _alternating(pairs: pl.DataFrame) -> str:
    whole = pairs.select(pl.concat_str(KEY, pl.lit("\n"), VALUE, pl.lit("\n"))).to_series()
    return str(whole.str.join("").item()) if pairs.height else ""


def _lines(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _sizes(pairs: pl.DataFrame) -> pl.Series:
    return pairs[KEY].str.len_bytes().cast(pl.Int64) + pairs[VALUE].str.len_bytes()


def _cut(pairs: pl.DataFrame) -> Iterator[pl.DataFrame]:
    if not pairs.height:
        return
    before = _sizes(pairs).cum_sum() // BYTES + pl.int_range(pairs.height, eager=True) // ROWS
    start = 0
    for length in before.rle().struct.field("len"):
        yield pairs[start : start + length]
        start += length


def _cut_lines(lines: Sequence[str]) -> Iterator[tuple[str, ...]]:
    found: list[str] = []
    size = 0
    for line in lines:
        if found and (len(found) == ROWS or size + len(line) > BYTES):
            yield tuple(found)
            found, size = [], 0
        found.append(line)
        size += len(line)
    if found:
        yield tuple(found)
