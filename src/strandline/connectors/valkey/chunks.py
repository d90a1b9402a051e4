"""A batch as parts that the server takes one at a time, each small enough that nobody else waits for long."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import polars as pl

ROWS: Final = 5_000
"""The rows of a part. The server does nothing else while one takes effect: about ten milliseconds."""
BYTES: Final = 8 * 1024 * 1024
"""Their bytes, but for a row that alone has more."""

KEY, VALUE, NUMBER = "key", "value", "number"
_NONE: Final = pl.DataFrame(schema={KEY: pl.String, VALUE: pl.String, NUMBER: pl.Int64})


def no_pairs() -> pl.DataFrame:
    """Keys with what belongs to them, and each row's number in the batch; none yet."""
    return _NONE


@dataclass(frozen=True, slots=True)
class Part:
    """Rows to be there and rows to be gone, each by its key; late elements and dead letters, each a line."""

    expiry: str = ""
    rows: pl.DataFrame = field(default_factory=no_pairs)
    gone: pl.DataFrame = field(default_factory=no_pairs)
    late: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()

    def to_texts(self) -> tuple[str, str, str, str, str]:
        """As the server reads it."""
        return self.expiry, _in_turn(self.rows), _in_turn(self.gone), _lines(self.late), _lines(self.dead)

    def without(self, rows: Iterable[int]) -> "Part":
        """The part but for some of its rows, by their place in it."""
        places = pl.Series(list(rows), dtype=pl.Int64)
        return replace(self, rows=self.rows.filter(~pl.int_range(pl.len()).is_in(places.implode())))

    def cut(self) -> list["Part"]:
        """Itself where it is small; else smaller ones, each of one kind."""
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


def _in_turn(pairs: pl.DataFrame) -> str:
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
