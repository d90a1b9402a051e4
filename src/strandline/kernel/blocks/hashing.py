"""Hash keys, column by column.

Checkpoints depend on these hashes: they assign keys to key groups. The arithmetic is therefore our own, so no release
of a library can change it. It runs on chunks of a few thousand rows, which stay in the CPU cache.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.errors import Unsupported
from strandline.kernel.blocks.bounded_parts import parts_by_size
from strandline.kernel.blocks.dictionary_encoding import dictionary_encode

if TYPE_CHECKING:
    import pyarrow as pa

Hashes = npt.NDArray[np.uint64]
_Places = npt.NDArray[np.int64]

_NULL: Final = np.uint64(0x9E3779B97F4A7C15)
_STEP: Final = np.uint64(0x100000001B3)
_CHUNK: Final = 1 << 14
_PIECE: Final = 1 << 12
"""Bytes of a long string that are summed at once. A byte expands to several numbers, so a string is never expanded
whole."""
_BYTES_AT_ONCE: Final = 1 << 16
"""Bytes of all pieces that are expanded at once; they stay in the CPU cache."""
_STEP_OF_PIECE: Final = np.uint64(pow(int(_STEP), _PIECE, 1 << 64))
_WORD: Final = 8
_SHORT: Final = 8 * _WORD
"""Strings up to this many bytes are read word by word, all at the same offset at once."""
_FIRST_BYTES: Final = np.array([(1 << 8 * many) - 1 for many in range(_WORD + 1)], np.uint64)
"""Masks that keep the first n bytes of a word."""


def hashed(keys: pl.DataFrame) -> Hashes:
    """Hash all columns of each row to one number."""
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
        # Equal keys need equal hashes: minus zero equals zero, and all NaN bit patterns are one key.
        plain = column.cast(pl.Float64).fill_null(0.0).to_numpy()
        return _scramble(np.where(np.isnan(plain), np.nan, np.where(plain == 0, 0.0, plain)).view(np.uint64))
    if kind.is_decimal():
        return _hash_bytes(column.cast(pl.String).cast(pl.Binary))
    raise Unsupported(f"a key of type {kind} cannot be grouped", hint="key by texts, numbers, times or bytes")


def _hash_bytes(column: pl.Series) -> Hashes:
    """Hash the bytes of each value. Dictionary-encode repeated values, so each distinct one is hashed once."""
    coded = dictionary_encode(column)
    if coded is None or not coded.words.len():
        return _hash_arrow(cast("pa.LargeBinaryArray", column.rechunk().to_arrow()))
    of_words = _hash_arrow(cast("pa.LargeBinaryArray", coded.words.to_arrow()))
    found: Hashes = of_words[coded.places.fill_null(0).to_numpy()]
    return found


def _hash_arrow(values: "pa.LargeBinaryArray") -> Hashes:
    """Hash each value by a polynomial over its bytes, then by its length."""
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
    """Compute the polynomials of short values, eight bytes at a time, masked at the end of each value."""
    longest = int(lengths.max(initial=0))
    powers = _powers(longest + _WORD)
    ones = np.concatenate([np.zeros(1, np.uint64), np.cumsum(powers)])
    # An overlapping word at every byte offset; zeros follow the last byte.
    padded = np.concatenate([data, np.zeros(_WORD, np.uint8)])
    words = np.ndarray(len(data) + 1, "<u8", padded, strides=(1,))
    found = ones[lengths]
    for part in _chunks(len(lengths)):
        start, length, sums = starts[part], lengths[part], found[part]
        for first in range(0, int(length.max(initial=0)), _WORD):
            left = np.clip(length - first, 0, _WORD)
            word = words[np.minimum(start + first, len(data))] & _FIRST_BYTES[left]
            for place in range(first, first + _WORD):
                sums += (word & np.uint64(0xFF)) * powers[place]
                word >>= np.uint64(8)
    return found


def _by_bytes(data: npt.NDArray[np.uint8], starts: _Places, lengths: _Places) -> Hashes:
    """Compute the polynomials of long values: sums over pieces of bounded size, each times the power of its offset."""
    pieces = -(-lengths // _PIECE)
    value = np.repeat(np.arange(len(lengths)), pieces)
    number = np.arange(len(value)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    begins, sizes = starts[value] + number * _PIECE, np.minimum(lengths[value] - number * _PIECE, _PIECE)
    powers, of_pieces = _powers(_PIECE), _powers(int(pieces.max(initial=0)), _STEP_OF_PIECE)
    found = np.zeros(len(lengths), np.uint64)
    for part in parts_by_size(sizes, _BYTES_AT_ONCE):
        size = sizes[part]
        ends = np.cumsum(size)
        place = np.arange(ends[-1]) - np.repeat(ends - size, size)
        bytes_of = data[place + np.repeat(begins[part], size)].astype(np.uint64)
        sums = np.add.reduceat((bytes_of + np.uint64(1)) * powers[place], ends - size)
        np.add.at(found, value[part], sums * of_pieces[number[part]])
    return found


def _powers(n: int, step: np.uint64 = _STEP) -> Hashes:
    return np.cumprod(np.concatenate([np.ones(1, np.uint64), np.full(max(n - 1, 0), step, np.uint64)]))


def _scramble(hashes: Hashes) -> Hashes:
    """Apply the SplitMix64 finalizer, where every input bit affects every output bit."""
    found = np.empty(len(hashes), np.uint64)
    for part in _chunks(len(hashes)):
        mixed = hashes[part] + np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(30)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(27)
        mixed *= np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
        found[part] = mixed
    return found


def _chunks(rows: int) -> Iterator[slice]:
    return (slice(begin, begin + _CHUNK) for begin in range(0, rows, _CHUNK))
