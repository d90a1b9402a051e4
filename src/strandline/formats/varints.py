"""Decode varints and byte ranges of many records at once, with a cursor per record, moved through all fields with
numpy."""

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.kernel.blocks.bounded_parts import parts_by_size

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

PADDING: Final = 16
"""Zero bytes after the last record, so that reading a truncated number stays in bounds."""
_LONGEST: Final = 10
_BYTES_AT_ONCE: Final = 1 << 20
"""Bytes that are copied at once: each needs a position of eight bytes meanwhile."""
_ONE, _SEVEN, _TOP = np.uint64(1), np.uint64(7), np.uint64(56)
_LENGTHS: Final = np.uint64(0x0102030405060708)
"""Multiplied by the position of a number's last byte, its top byte is the number's length."""
_STOPS: Final = np.uint64(0x8080808080808080)
"""The continuation bit of each byte of a word."""
_PAIRS: Final = tuple(
    (np.uint64(here), np.uint64(next_), np.uint64(shift))
    for here, next_, shift in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
)
"""How the 7-bit groups of a word are joined: in pairs, then pairs of pairs, then both halves."""

TRUNCATED = "it ends in the middle of a value"
TRAILING = "there are bytes left after the last value"
NEGATIVE = "a length below zero"
TOO_MANY = "more than 250,000 arrays and maps in one record"
ENDLESS = "a number of more than 64 bits"
OUT_OF_RANGE = "a number out of the range of its type"
NO_BRANCH = "a union branch that the schema does not have"
NO_SYMBOL = "a symbol that the schema does not have"
NO_BOOLEAN = "a boolean that is neither 0 nor 1"
NOT_UTF8 = "a text that is not UTF-8"
NO_TIME = "a time outside of the years 1 to 9999"
REASONS: Final = (
    "", TRUNCATED, TRAILING, NEGATIVE, ENDLESS, OUT_OF_RANGE, NO_BRANCH, NO_SYMBOL, NO_BOOLEAN, NOT_UTF8, NO_TIME,
)  # fmt: skip


@dataclass(slots=True)
class Cursor:
    """Per record: the read position, its end, and its first error if there is one."""

    data: Bytes
    at: Ints
    end: Ints
    wrong: npt.NDArray[np.uint8] = field(init=False)

    def __post_init__(self) -> None:
        self.wrong = np.zeros(len(self.at), np.uint8)

    def report(self, rows: Ints, where: Bools, reason: str) -> None:
        """Record an error; the first one of a record stays. The record's cursor moves to its end, where nothing more
        can fail."""
        if where.any():
            bad = rows[where]
            self.wrong[bad] = np.where(self.wrong[bad] == 0, REASONS.index(reason), self.wrong[bad])
            self.at[bad] = self.end[bad]

    def _advance(self, rows: Ints, to: Ints) -> None:
        self.at[rows] = to
        self.report(rows, to > self.end[rows], TRUNCATED)

    def finish(self) -> None:
        all_rows = np.arange(len(self.at))
        self.report(all_rows, self.at < self.end, TRAILING)

    def varint(self, rows: Ints) -> npt.NDArray[np.uint64]:
        """Read varints, seven bits a byte, little-endian. Up to eight bytes are read as one word; longer ones byte by
        byte."""
        at = self.at[rows]
        first = self.data[at]
        if not (first & 0x80).any():
            # Lengths of texts and indexes of unions and enums nearly always take one byte.
            self._advance(rows, at + 1)
            return first.astype(np.uint64)
        word = _words(self.data)[at]
        stop = ~word & _STOPS
        if not stop.all():
            return self._long(rows)
        stop &= -stop
        self._advance(rows, at + (((stop >> _SEVEN) * _LENGTHS) >> _TOP).astype(np.int64))
        word &= (stop - _ONE) & ~_STOPS
        for here, next_, shift in _PAIRS:
            word = (word & here) | ((word & next_) >> shift)
        return word

    def _long(self, rows: Ints) -> npt.NDArray[np.uint64]:
        at = self.at[rows]
        byte = self.data[at]
        value = (byte & 0x7F).astype(np.uint64)
        open_ = np.flatnonzero(byte & 0x80)
        length = np.ones(len(rows), np.int64)
        endless = np.zeros(len(rows), np.bool_)
        for place in range(1, _LONGEST):
            if not len(open_):
                break
            byte = self.data[at[open_] + place]
            value[open_] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * place)
            length[open_] += 1
            if place == _LONGEST - 1:
                endless[open_] = byte > 1
            open_ = open_[(byte & 0x80) != 0]
        self._advance(rows, at + length)
        self.report(rows, endless, ENDLESS)
        return value

    def zigzag(self, rows: Ints) -> Ints:
        """Read zigzag-encoded signed numbers: 0, -1, 1, -2, 2 as 0, 1, 2, 3, 4."""
        value = self.varint(rows)
        half = (value >> np.uint64(1)).astype(np.int64)
        return half ^ -(value & np.uint64(1)).astype(np.int64)

    def numbers(self, rows: Ints, kind: str) -> npt.NDArray[Any]:
        """Read little-endian numbers of four or eight bytes."""
        size = np.dtype(kind).itemsize
        at = self.at[rows]
        places = at[:, None] + np.arange(size)
        found: npt.NDArray[Any] = self.data[places].view(kind).reshape(-1)
        self._advance(rows, at + size)
        return found

    def byte(self, rows: Ints) -> Bytes:
        at = self.at[rows]
        found = self.data[at]
        self._advance(rows, at + 1)
        return found

    def spans(self, rows: Ints, lengths: Ints | None = None, size: int = 0) -> tuple[Ints, Ints]:
        """The start and length of the next bytes, with the given lengths or `size`."""
        if lengths is None:
            lengths = np.full(len(rows), size, np.int64)
        self.report(rows, lengths < 0, NEGATIVE)
        at, left = self.at[rows], self.end[rows] - self.at[rows]
        fits = (lengths >= 0) & (lengths <= left)
        self.report(rows, lengths > left, TRUNCATED)
        lengths = np.where(fits, lengths, 0)
        self.at[rows] += lengths
        return at, lengths

    def bytes(self, starts: Ints, lengths: Ints) -> pa.Array:
        """Copy the bytes at these positions into an Arrow array."""
        offsets = np.zeros(len(starts) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        data = np.empty(offsets[-1], np.uint8)
        for part in parts_by_size(lengths, _BYTES_AT_ONCE):
            first, last = offsets[part.start], offsets[part.stop]
            if part.stop - part.start == 1:
                data[first:last] = self.data[starts[part.start] : starts[part.start] + last - first]
            else:
                places = np.repeat(starts[part] - offsets[:-1][part], lengths[part])
                places += np.arange(first, last)
                data[first:last] = self.data[places]
        return pa.Array.from_buffers(pa.large_binary(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(data)])

    def texts(self, rows: Ints, starts: Ints, lengths: Ints) -> pa.Array:
        """Copy texts likewise; those that are not UTF-8 are reported and left empty."""
        found = self.bytes(starts, lengths)
        try:
            return found.cast(pa.large_string())
        except pa.ArrowInvalid:
            bad = np.array([not is_text(each) for each in found.to_pylist()])
            self.report(rows, bad, NOT_UTF8)
            return self.bytes(starts, np.where(bad, 0, lengths)).cast(pa.large_string())


def _words(data: Bytes) -> npt.NDArray[np.uint64]:
    """The eight bytes from each position on, little-endian; the padding is long enough for the last."""
    return np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))


def cursor_over(values: pa.Array, skip: int = 0) -> Cursor:
    """A cursor at the beginning of each value, after `skip` bytes."""
    plain = values.cast(pa.large_binary())
    _, offsets, data = plain.buffers()
    bounds = np.frombuffer(offsets, np.int64, len(plain) + 1, plain.offset * 8)
    source = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    padded = np.zeros(int(bounds[-1] - bounds[0]) + PADDING, np.uint8)
    padded[: -PADDING or None] = source[bounds[0] : bounds[-1]]
    return Cursor(padded, bounds[:-1] - bounds[0] + skip, (bounds[1:] - bounds[0]).copy())


def is_text(value: bytes) -> bool:
    """Whether these bytes are UTF-8."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
