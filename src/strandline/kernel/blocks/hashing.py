"""The hash of a key, for whole columns at once.

Where a key lives is kept in checkpoints, so this is arithmetic of our own that no library's next release can change.
It is done a few thousand rows at a time: over whole columns every step would wait for memory.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.errors import Unsupported
from strandline.kernel.blocks.dictionary_encoding import coded

if TYPE_CHECKING:
    import pyarrow as pa

Hashes = npt.NDArray[np.uint64]
_Places = npt.NDArray[np.int64]

_NULL: Final = np.uint64(0x9E3779B97F4A7C15)
_STEP: Final = np.uint64(0x100000001B3)
_AT_ONCE: Final = 1 << 14
_FEW: Final = 1 << 8
"""So many long texts at a time, as each of them is many numbers."""
_WORD: Final = 8
_SHORT: Final = 8 * _WORD
"""Up to so many bytes, texts are read word by word, all of them at the same place."""
_FIRST_BYTES: Final = np.array([(1 << 8 * many) - 1 for many in range(_WORD + 1)], np.uint64)
"""What leaves the first few bytes of a word."""


def hashed(keys: pl.DataFrame) -> Hashes:
    """For each row a hash of all its columns."""
    mixed = np.zeros(keys.height, np.uint64)
    for place, column in enumerate(keys):
        hashes = _hash(column)
        mixed = _scramble(mixed * _STEP + hashes if place else hashes)
    return mixed


def _hash(column: pl.Series) -> Hashes:
    nulls = column.is_null().to_numpy() if column.null_count() else None
    hashes = _hash_values(column)
    return hashes if nulls is None else np.where(nulls, _NULL, hashes)


def _hash_values(column: pl.Series) -> Hashes:
    kind = column.dtype
    if kind in (pl.String, pl.Categorical, pl.Enum):
        return _hash_bytes(column.cast(pl.String).cast(pl.Binary))
    if kind == pl.Binary:
        return _hash_bytes(column)
    if kind.is_integer() or kind == pl.Boolean or kind.is_temporal():
        whole = column.to_physical() if kind.is_temporal() else column
        return _scramble(whole.cast(pl.Int64, wrap_numerical=True).fill_null(0).to_numpy().view(np.uint64))
    if kind.is_float():
        # Minus zero equals zero, so it must live where zero lives; and so must all the bits that are not a number.
        plain = column.cast(pl.Float64).fill_null(0.0).to_numpy()
        return _scramble(np.where(np.isnan(plain), np.nan, np.where(plain == 0, 0.0, plain)).view(np.uint64))
    if kind.is_decimal():
        return _hash_bytes(column.cast(pl.String).cast(pl.Binary))
    raise Unsupported(f"a key of type {kind} cannot be grouped", hint="key by texts, numbers, times or bytes")


def _hash_bytes(column: pl.Series) -> Hashes:
    """A hash of each value's bytes. Where the same few come again and again, each of them is looked at once."""
    few = coded(column)
    if few is None or not few.words.len():
        return _hash_arrow(cast("pa.LargeBinaryArray", column.rechunk().to_arrow()))
    of_words = _hash_arrow(cast("pa.LargeBinaryArray", few.words.to_arrow()))
    found: Hashes = of_words[few.places.fill_null(0).to_numpy()]
    return found


def _hash_arrow(values: "pa.LargeBinaryArray") -> Hashes:
    """A polynomial over each value's bytes, then its length."""
    _, places, content = values.buffers()
    bounds = np.frombuffer(places, np.int64)[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(content, np.uint8)[bounds[0] : bounds[-1]] if content else np.zeros(0, np.uint8)
    starts, lengths = bounds[:-1] - bounds[0], np.diff(bounds)
    short = lengths <= _SHORT
    if short.all():
        found = _by_words(data, starts, lengths)
    else:
        found = np.empty(len(lengths), np.uint64)
        found[short] = _by_words(data, starts[short], lengths[short])
        found[~short] = _by_bytes(data, starts[~short], lengths[~short])
    return _scramble(found + lengths.view(np.uint64))


def _by_words(data: npt.NDArray[np.uint8], starts: _Places, lengths: _Places) -> Hashes:
    """The polynomials of short values: of each, eight bytes at a time, and nothing where it has none."""
    longest = int(lengths.max(initial=0))
    powers = _powers(longest + _WORD)
    ones = np.concatenate([np.zeros(1, np.uint64), np.cumsum(powers)])
    # One word from every byte on; behind the last byte there is nothing.
    padded = np.concatenate([data, np.zeros(_WORD, np.uint8)])
    words = np.ndarray(len(data) + 1, "<u8", padded, strides=(1,))
    found = ones[lengths]
    for part in _parts(len(lengths)):
        start, length, sums = starts[part], lengths[part], found[part]
        for first in range(0, int(length.max(initial=0)), _WORD):
            left = np.clip(length - first, 0, _WORD)
            word = words[np.minimum(start + first, len(data))] & _FIRST_BYTES[left]
            for place in range(first, first + _WORD):
                sums += (word & np.uint64(0xFF)) * powers[place]
                word >>= np.uint64(8)
    return found


def _by_bytes(data: npt.NDArray[np.uint8], starts: _Places, lengths: _Places) -> Hashes:
    """The polynomials of long values: sums over all bytes of some of them, and what is between two places of these."""
    found = np.empty(len(lengths), np.uint64)
    powers = _powers(int(lengths.max(initial=0)))
    for part in _parts(len(lengths), _FEW):
        length = lengths[part]
        ends = np.cumsum(length)
        begins = ends - length
        place = np.arange(ends[-1]) - np.repeat(begins, length)
        bytes_of = data[place + np.repeat(starts[part], length)].astype(np.uint64)
        running = np.concatenate([np.zeros(1, np.uint64), np.cumsum((bytes_of + np.uint64(1)) * powers[place])])
        found[part] = running[ends] - running[begins]
    return found


def _powers(n: int) -> Hashes:
    return np.cumprod(np.concatenate([np.ones(1, np.uint64), np.full(max(n - 1, 0), _STEP, np.uint64)]))


def _scramble(hashes: Hashes) -> Hashes:
    """The finaliser of SplitMix64: every bit of the input reaches every bit of the output."""
    found = np.empty(len(hashes), np.uint64)
    for part in _parts(len(hashes)):
        mixed = hashes[part] + np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(30)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(27)
        mixed *= np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
        found[part] = mixed
    return found


def _parts(rows: int, many: int = _AT_ONCE) -> Iterator[slice]:
    return (slice(begin, begin + many) for begin in range(0, rows, many))
