"""Encode named frames as blocks of bytes with a version and a checksum; define the kernel's column names.

    magic "SLB" | version, 1 byte | checksum, 4 bytes | header length, 4 bytes | header, JSON | Arrow streams

The header lists the frames in order with their lengths, and carries facts: small values that belong to the block. The
kernel's columns start with "@"; user columns must not. Spark's cost grows with the bytes sent, so large frames are
encoded column by column:

    constant      a kernel column with one value in all rows: that value, in a second stream behind the frame's
    duplicate     a kernel column equal to another one: only the name of that column ("alike")
    narrow        64-bit integers: the offset from the column's minimum, in the narrowest type that holds it
    delta         non-decreasing integers: the difference to the previous value, where that is narrower ("rising")
    dictionary    repeated strings: an index into a list of the distinct ones ("listed")
    compressed    other strings and nested columns, if they are large

Decoding restores every frame exactly. Version 1 had no constant columns, version 2 no narrow integers, version 3 narrow
integers without offset and no dictionaries, version 4 no duplicates and no dictionaries or compression of user strings,
version 5 no deltas. All versions can be read.
"""

import io
import json
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.errors import BrokenBlock
from strandline.kernel.blocks.dictionary_encoding import MAX_DISTINCT_STORED, SAMPLED, dictionary_encode
from strandline.kernel.blocks.small_frames import only, replaced, without
from strandline.kernel.blocks.sorting import is_constant

MAGIC: Final = b"SLB"
VERSION: Final = 6
_READ: Final = (1, 2, 3, 4, 5, 6)
_HEAD: Final = struct.Struct(">3sBI")
_LENGTH: Final = struct.Struct(">I")
_MIN_ROWS: Final = 256
"""Frames with fewer rows are not encoded: the saving is less than the cost of looking."""
_MAX_BITS: Final = 63
"""Differences of fewer bits fit a signed 64-bit integer."""
_TEXTS: Final = (pl.String, pl.Binary)
_NARROW: Final = ((1 << 8, pl.UInt8), (1 << 16, pl.UInt16), (1 << 32, pl.UInt32))
"""Narrow types with the number of values that each can hold."""
_MIN_COMPRESSED: Final = 16_384
"""Minimum size in bytes at which strings and lists are compressed."""
_MAX_OWN_WORDS: Final = 16
"""Largest dictionary for a kernel column of a small frame."""
_MAX_WORDS: Final = 1 << 16
"""Largest dictionary for any other column."""

OWN: Final = "@"

Frames = Mapping[str, pl.DataFrame]

AT: Final = "@at"
"""Event time of an element, in milliseconds."""
PARTITION: Final = "@partition"
OFFSET: Final = "@offset"
INPUT: Final = "@input"
"""Number of the input that an element came from. A step with one input leaves the column out."""
REASON: Final = "@reason"
"""Reason for which an element was rejected."""
SIGN: Final = "@sign"
"""1 for an insertion, -1 for a retraction. Only steps over a changelog have the column."""
START: Final = "@start"
"""Start of a window, inclusive, in milliseconds."""
END: Final = "@end"
GAP: Final = "@gap"
"""Session gap of an element, in milliseconds."""
NEW: Final = "@new"
"""Number of elements that this batch adds to a window."""
EARLIEST: Final = "@earliest"
"""Least event time of the new elements of a window."""
COUNTED: Final = "@counted"
"""Number of new elements counted in this window. An element of several windows is counted in one of them only."""
NEWEST: Final = "@newest"
"""Whether a window is the last of an element's windows to expire."""
TIME: Final = "@time"
"""Combined time of the new elements that hold the output watermark back; null if none does."""


def element_columns(frame: pl.DataFrame) -> list[str]:
    """Name the columns that identify an element: its input, where a step has several, its partition and its offset."""
    return [name for name in (INPUT, PARTITION, OFFSET) if name in frame.columns]


@dataclass(frozen=True, slots=True)
class Block:
    """Named frames, and facts: small values stored with them."""

    frames: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


def pack(block: Block) -> bytes:
    """Encode a block. Equal blocks give equal bytes, so a replayed batch writes the same bytes."""
    frames: list[list[Any]] = []
    streams: list[bytes] = []
    narrow: dict[str, dict[str, int]] = {}
    rising: dict[str, dict[str, int]] = {}
    listed: dict[str, dict[str, list[str]]] = {}
    alike: dict[str, list[list[str]]] = {}
    for name, given in block.frames.items():
        # Get the columns once: Polars materializes a scalar column on every access.
        whole = pl.DataFrame(given.get_columns())
        duplicates = _duplicates(whole)
        frame = without(whole, duplicates)
        alike |= {name: [whole.columns, [*duplicates], [*duplicates.values()]]} if duplicates else {}
        constants = _constants(frame)
        rest, bases, firsts, lists = _narrowed(without(frame, constants))
        narrow |= {name: bases} if bases else {}
        rising |= {name: firsts} if firsts else {}
        listed |= {name: lists} if lists else {}
        parts = [_to_arrow(rest), *([_to_arrow(only(frame, constants).head(1))] if constants else [])]
        order = [frame.height, *frame.columns] if constants else []
        frames.append([name, *(len(part) for part in parts), *order])
        streams += parts
    layout = {"frames": frames, "facts": dict(block.facts)}
    encodings: dict[str, Any] = {"narrow": narrow, "rising": rising, "listed": listed, "alike": alike}
    layout |= {name: each for name, each in encodings.items() if each}
    header = json.dumps(layout, separators=(",", ":"), sort_keys=True).encode()
    body = b"".join([_LENGTH.pack(len(header)), header, *streams])
    return _HEAD.pack(MAGIC, VERSION, _checksum(body, VERSION)) + body


def unpack(data: bytes, place: str) -> Block:
    """Decode a block. `place` names where the bytes are stored, for error messages."""
    packed = open_block(data, place)
    return Block({name: packed.frame(name) for name in packed.names}, packed.facts)


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """Block that decodes frames and columns on demand."""

    _data: bytes
    _layout: Mapping[str, Any]
    _places: Mapping[str, tuple[int, list[Any]]]
    """Offset of the streams of each frame, and its entry of the header: sizes, height, column order."""

    @property
    def facts(self) -> Mapping[str, Any]:
        facts: Mapping[str, Any] = self._layout["facts"]
        return facts

    @property
    def names(self) -> Sequence[str]:
        """Return the names of the frames."""
        return [*self._places]

    def frame(
        self, name: str, columns: Sequence[str] | None = None, rows: npt.NDArray[np.int64] | None = None
    ) -> pl.DataFrame:
        """Decode a frame, or some of its columns or rows."""
        order, duplicates, originals = self._layout.get("alike", {}).get(name, (None, (), ()))
        pairs = zip(duplicates, originals, strict=True)
        copies = {copy: original for copy, original in pairs if columns is None or copy in columns}
        wanted = None if columns is None else {*columns, *copies.values()} - {*copies}
        found = self._decoded(name, wanted, rows)
        if copies:
            found = found.hstack([found[original].alias(copy) for copy, original in copies.items()])
        return only(found, columns or order or found.columns)

    def _decoded(self, name: str, wanted: set[str] | None, rows: npt.NDArray[np.int64] | None) -> pl.DataFrame:
        """Decode the streams of a frame: all or the wanted columns, all or the given rows."""
        at, (size, *more) = self._places[name]
        length, height, *order = more or (0, 0)
        constants = pl.read_ipc_stream(self._data[at + size : at + size + length]) if more else pl.DataFrame()
        stored = None if wanted is None else wanted - {*constants.columns}
        frame = pl.DataFrame() if stored == set() else _from_arrow(self._data[at : at + size], stored)
        frame = _undo_deltas(frame, self._layout.get("rising", {}).get(name, {}))
        if rows is not None:
            frame, height = frame[rows] if frame.width else frame, len(rows)
        narrow, listed = self._layout.get("narrow", {}).get(name, {}), self._layout.get("listed", {}).get(name, {})
        wide = _widened(frame, narrow, listed)
        if not more:
            return wide
        return _with_constants(wide, constants, height, [each for each in order if wanted is None or each in wanted])


def open_block(data: bytes, place: str) -> Packed:
    """Verify checksum and version, and return the block without decoding its frames.

    `place` names where the bytes are stored, for error messages.
    """
    if len(data) < _HEAD.size or data[:3] != MAGIC:
        raise BrokenBlock(f"the bytes at {place} are not a block", detail=f"{len(data)} bytes, {data[:8]!r}…")
    _, version, checksum = _HEAD.unpack_from(data)
    if version not in _READ:
        raise BrokenBlock(
            f"the block at {place} has version {version}",
            detail=f"this Strandline reads versions {_READ[0]} to {_READ[-1]}",
            hint="another release wrote it: start with that release, or from a savepoint",
        )
    if _checksum(memoryview(data)[_HEAD.size :], version) != checksum:
        raise BrokenBlock(
            f"the block at {place} is damaged",
            detail=f"{len(data)} bytes do not match their checksum",
            hint="restore the checkpoint from a copy, or start from a savepoint",
        )
    if len(data) < _HEAD.size + _LENGTH.size:
        raise BrokenBlock(f"the block at {place} has no header", detail=f"{len(data)} bytes")
    (length,) = _LENGTH.unpack_from(data, _HEAD.size)
    start = _HEAD.size + _LENGTH.size
    try:
        layout = json.loads(data[start : start + length])
        places, at = {}, start + length
        for name, size, *more in layout["frames"]:
            places[name] = (at, [size, *more])
            at += size + (more[0] if more else 0)
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        raise BrokenBlock(f"the block at {place} has no valid header", detail=str(problem)[:200]) from None
    return Packed(data, layout, places)


def _checksum(body: bytes | memoryview, version: int) -> int:
    """Compute the checksum. From version 3 on it covers the version, which damage could turn into an older one."""
    return zlib.crc32(body, version if version >= 3 else 0)


def _duplicates(frame: pl.DataFrame) -> dict[str, str]:
    """Return the kernel's columns that equal another column in every row, with the name of that column."""
    found: dict[str, str] = {}
    if frame.height < _MIN_ROWS:
        return found
    candidates: dict[tuple[Any, ...], list[pl.Series]] = {}
    for column in frame:
        if column.name.startswith(OWN) and (column.dtype.is_integer() or column.dtype == pl.String):
            seen = candidates.setdefault((column.dtype, column[0], column[-1], column[frame.height // 2]), [])
            original = next((each for each in seen if each.equals(column)), None)
            if original is None:
                seen.append(column)
            else:
                found[column.name] = original.name
    return found


def _constants(frame: pl.DataFrame) -> list[str]:
    """Return the kernel's columns that hold one value in all rows; none for small frames."""
    if frame.height < _MIN_ROWS:
        return []
    return [column.name for column in frame if column.name.startswith(OWN) and is_constant(column)]


def _narrowed(frame: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, int], dict[str, int], dict[str, list[str]]]:
    """Encode integers as offsets or deltas and strings as indexes; small frames stay as they are.

    Returns the frame, the minimum of each offset column, the first value of each delta column, and the dictionaries.
    """
    bases: dict[str, int] = {}
    firsts: dict[str, int] = {}
    lists: dict[str, list[str]] = {}
    if frame.height < _MIN_ROWS:
        return frame, bases, firsts, lists
    encoded: list[pl.Series] = []
    for column in frame:
        name, own = column.name, column.name.startswith(OWN)
        if column.dtype == pl.Int64 and (least := column.min()) is not None:
            low, high = int(cast("int", least)), int(cast("int", column.max()))
            kind, deltas = _narrowest(high - low), _deltas(column, low, high)
            if deltas is not None:
                firsts[name] = low
                encoded.append(deltas)
            elif kind is not None:
                bases[name] = low
                encoded.append((column - low).cast(kind, wrap_numerical=True))
        elif (
            column.dtype == pl.String
            and (coded := dictionary_encode(column, MAX_DISTINCT_STORED)) is not None
            and coded.words.len() <= _MAX_WORDS
        ):
            lists[name] = coded.words.to_list()
            encoded.append(coded.places.cast(pl.UInt8 if coded.words.len() <= 1 << 8 else pl.UInt16))
        elif (
            own
            and column.dtype == pl.String
            and column.len() < SAMPLED
            and len(words := _words(column)) <= _MAX_OWN_WORDS
        ):
            lists[name] = words.to_list()
            encoded.append(column.cast(pl.Enum(lists[name])).to_physical().cast(pl.UInt8))
    return replaced(frame, encoded), bases, firsts, lists


def _narrowest(span: int) -> "type[pl.DataType] | None":
    """Return the narrowest type for numbers from 0 to `span`; None if only 64 bits hold them."""
    return next((kind for many, kind in _NARROW if span < many), None)


def _deltas(column: pl.Series, low: int, high: int) -> pl.Series | None:
    """Return the differences to the previous value; None if a value decreases or deltas are no narrower than offsets.

    The first and the last value are compared with minimum and maximum first, which rules out most other columns.
    """
    if column.null_count() or column[0] != low or column[-1] != high or (high - low).bit_length() >= _MAX_BITS:
        return None
    deltas = np.diff(column.to_numpy(), prepend=low)
    kind = _narrowest(int(deltas.max())) if deltas.min() >= 0 else None
    return None if kind is None or kind == _narrowest(high - low) else pl.Series(column.name, deltas).cast(kind)


def _undo_deltas(frame: pl.DataFrame, firsts: Mapping[str, int]) -> pl.DataFrame:
    """Decode delta columns."""
    names = [name for name in firsts if name in frame.columns]
    return replaced(
        frame, [pl.Series(name, np.cumsum(frame[name].to_numpy(), dtype=np.int64) + firsts[name]) for name in names]
    )


def _words(column: pl.Series) -> pl.Series:
    return column.drop_nulls().unique().sort()


def _widened(
    frame: pl.DataFrame, bases: Mapping[str, int] | Sequence[str], lists: Mapping[str, Sequence[str]]
) -> pl.DataFrame:
    """Decode offset and dictionary columns. Version 3 lists only the names of narrow columns."""
    known = bases if isinstance(bases, Mapping) else dict.fromkeys(bases, 0)
    narrow = ((name, low) for name, low in known.items() if name in frame.columns)
    wide = [frame[name].cast(pl.Int64, wrap_numerical=True) + low for name, low in narrow]
    wide += [
        pl.Series(name, words, pl.String).gather(frame[name]) for name, words in lists.items() if name in frame.columns
    ]
    return replaced(frame, wide)


def _with_constants(frame: pl.DataFrame, constants: pl.DataFrame, height: int, order: Sequence[str]) -> pl.DataFrame:
    """Restore the constant columns."""
    columns = [column.new_from_index(0, height) for column in constants if column.name in order]
    return only(frame.hstack(columns) if frame.width else pl.DataFrame(columns), order)


def _plain_bits(frame: pl.DataFrame) -> pl.DataFrame:
    """Clear the padding bits of Boolean columns: comparisons leave arbitrary bits, so equal frames would differ."""
    if pl.Boolean not in frame.dtypes:
        return frame
    return pl.DataFrame([
        column.cast(pl.UInt8).cast(pl.Boolean) if column.dtype == pl.Boolean else column for column in frame
    ])  # fmt: skip


def _is_worth_compressing(frame: pl.DataFrame) -> bool:
    return frame.estimated_size() >= _MIN_COMPRESSED


def _from_arrow(data: bytes, columns: Iterable[str] | None) -> pl.DataFrame:
    return pl.read_ipc_stream(data, columns=None if columns is None else [*columns])


def _to_arrow(frame: pl.DataFrame) -> bytes:
    out, frame = io.BytesIO(), _plain_bits(frame)
    # Numbers are narrow already. Compression more than halves strings and lists at little cost.
    texts = any(kind in _TEXTS or kind.is_nested() for kind in frame.schema.values()) and _is_worth_compressing(frame)
    # The oldest compatibility level writes strings contiguously. Views would depend on the history of their buffers, so
    # equal frames would give different bytes.
    frame.write_ipc_stream(out, compression="zstd" if texts else "uncompressed", compat_level=pl.CompatLevel.oldest())
    return out.getvalue()
