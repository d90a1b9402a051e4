"""Blocks: named frames as bytes, with a version and a checksum; and the names of the kernel's own columns.

    magic "SLB" | version, 1 byte | checksum, 4 bytes | header length, 4 bytes | header, JSON | Arrow streams

The header lists the frames in order with their lengths, and carries facts: small values that belong to the block. The
kernel's columns start with "@", which no column of a user may. Most of them say the same in every row of a large frame
(a window's bounds, how often it has spoken): such a column is kept as one value, in a stream of its own behind the
frame's. Some say the same as another (where the last of several values stood), and only its name is kept. What crosses
to Spark is paid for by the byte, so the long integers of a large frame are kept as how far each is above the least of
its column, or where they rise and that is less, above the one before it, in the narrowest type that holds that; and
texts that come again and again, as their numbers in a list, others compressed. All come back as they were. Version 1
had no such streams, version 2 nothing narrow, version 3 narrow integers as they are and no lists, version 4 every
column by itself and texts as they are, version 5 no steps; all are read.
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
from strandline.kernel.blocks.dictionary_encoding import SAMPLED, VERY_OFTEN, coded
from strandline.kernel.blocks.small_frames import only, replaced, without
from strandline.kernel.blocks.sorting import is_one

MAGIC: Final = b"SLB"
VERSION: Final = 6
_READ: Final = (1, 2, 3, 4, 5, 6)
_HEAD: Final = struct.Struct(">3sBI")
_LENGTH: Final = struct.Struct(">I")
_WORTH_IT: Final = 256
_SIGNED: Final = 63
"""Bits of a distance that is still a long integer."""
_TEXTS: Final = (pl.String, pl.Binary)
_NARROW: Final = ((1 << 8, pl.UInt8), (1 << 16, pl.UInt16), (1 << 32, pl.UInt32))
"""How many integers a narrow type has."""
_LONG: Final = 16_384
"""Bytes of texts and lists that are worth compressing."""
_FEW: Final = 16
"""So many of the kernel's own texts are kept in a list."""
_MOST: Final = 1 << 16
"""So many of a user's."""

OWN: Final = "@"

Frames = Mapping[str, pl.DataFrame]

AT: Final = "@at"
"""An element's event time, in milliseconds."""
PARTITION: Final = "@partition"
OFFSET: Final = "@offset"
INPUT: Final = "@input"
"""Number of the input that an element came by. A step with one input leaves the column out."""
REASON: Final = "@reason"
"""Why an element was refused."""
SIGN: Final = "@sign"
"""1 for an element, -1 for one that takes an equal one back; only where a step's elements may."""
START: Final = "@start"
"""A window's first instant, in milliseconds."""
END: Final = "@end"
GAP: Final = "@gap"
"""The gap that an element brings to its session, in milliseconds."""
NEW: Final = "@new"
"""Elements that this batch brings to a window."""
EARLIEST: Final = "@earliest"
"""The least event time among them."""
COUNTED: Final = "@counted"
"""How many of them are counted here: each element once, however many windows it has."""
NEWEST: Final = "@newest"
"""Whether a window is the last of an element's to go."""
TIME: Final = "@time"
"""Their combined time, of those that hold the output watermark back; null if none does."""


def element_columns(frame: pl.DataFrame) -> list[str]:
    """Name the columns that identify an element: its input, where a step has several, its partition and its offset."""
    return [name for name in (INPUT, PARTITION, OFFSET) if name in frame.columns]


@dataclass(frozen=True, slots=True)
class Block:
    """Named frames and the facts that belong to them."""

    frames: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


def pack(block: Block) -> bytes:
    """A block as bytes. Blocks made alike give equal bytes, so that a batch that is played again writes the same."""
    frames: list[list[Any]] = []
    streams: list[bytes] = []
    narrow: dict[str, dict[str, int]] = {}
    rising: dict[str, dict[str, int]] = {}
    listed: dict[str, dict[str, list[str]]] = {}
    alike: dict[str, list[list[str]]] = {}
    for name, given in block.frames.items():
        # Asked for once: a column that was said to hold one value is made whole whenever it is asked for.
        whole = pl.DataFrame(given.get_columns())
        others = _alike(whole)
        frame = without(whole, others)
        alike |= {name: [whole.columns, [*others], [*others.values()]]} if others else {}
        same = _same_throughout(frame)
        rest, bases, firsts, lists = _narrowed(without(frame, same))
        narrow |= {name: bases} if bases else {}
        rising |= {name: firsts} if firsts else {}
        listed |= {name: lists} if lists else {}
        parts = [_to_arrow(rest), *([_to_arrow(only(frame, same).head(1))] if same else [])]
        order = [frame.height, *frame.columns] if same else []
        frames.append([name, *(len(part) for part in parts), *order])
        streams += parts
    layout = {"frames": frames, "facts": dict(block.facts)}
    more: dict[str, Any] = {"narrow": narrow, "rising": rising, "listed": listed, "alike": alike}
    layout |= {name: each for name, each in more.items() if each}
    header = json.dumps(layout, separators=(",", ":"), sort_keys=True).encode()
    body = b"".join([_LENGTH.pack(len(header)), header, *streams])
    return _HEAD.pack(MAGIC, VERSION, _checksum(body, VERSION)) + body


def unpack(data: bytes, place: str) -> Block:
    """The block in these bytes; `place` says in an error where they were kept."""
    packed = opened(data, place)
    return Block({name: packed.frame(name) for name in packed.names}, packed.facts)


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """A block whose frames are read when they are asked for, and only those of their columns that are."""

    _data: bytes
    _layout: Mapping[str, Any]
    _places: Mapping[str, tuple[int, list[Any]]]
    """Where the streams of each frame begin, and what is said of them."""

    @property
    def facts(self) -> Mapping[str, Any]:
        facts: Mapping[str, Any] = self._layout["facts"]
        return facts

    @property
    def names(self) -> Sequence[str]:
        """Of its frames."""
        return [*self._places]

    def frame(
        self, name: str, columns: Sequence[str] | None = None, rows: npt.NDArray[np.int64] | None = None
    ) -> pl.DataFrame:
        """One of its frames, as it was, or some columns or rows of it."""
        order, others, theirs = self._layout.get("alike", {}).get(name, (None, (), ()))
        copies = {other: one for other, one in zip(others, theirs, strict=True) if columns is None or other in columns}
        wanted = None if columns is None else {*columns, *copies.values()} - {*copies}
        found = self._written(name, wanted, rows)
        if copies:
            found = found.hstack([found[one].alias(other) for other, one in copies.items()])
        return only(found, columns or order or found.columns)

    def _written(self, name: str, wanted: set[str] | None, rows: npt.NDArray[np.int64] | None) -> pl.DataFrame:
        """What there is in the streams of a frame: of all columns or those wanted, of all rows or some."""
        at, (size, *more) = self._places[name]
        length, height, *order = more or (0, 0)
        same = pl.read_ipc_stream(self._data[at + size : at + size + length]) if more else pl.DataFrame()
        here = None if wanted is None else wanted - {*same.columns}
        frame = pl.DataFrame() if here == set() else _from_arrow(self._data[at : at + size], here)
        frame = _risen(frame, self._layout.get("rising", {}).get(name, {}))
        if rows is not None:
            frame, height = frame[rows] if frame.width else frame, len(rows)
        narrow, listed = self._layout.get("narrow", {}).get(name, {}), self._layout.get("listed", {}).get(name, {})
        wide = _widened(frame, narrow, listed)
        return (
            _whole(wide, same, height, [each for each in order if wanted is None or each in wanted]) if more else wide
        )


def opened(data: bytes, place: str) -> Packed:
    """The block in these bytes, found to be whole; `place` says in an error where they were kept."""
    if len(data) < _HEAD.size or data[:3] != MAGIC:
        raise BrokenBlock(f"the bytes at {place} are not a block", detail=f"{len(data)} bytes, {data[:8]!r}…")
    _, version, checksum = _HEAD.unpack_from(data)
    if version not in _READ:
        raise BrokenBlock(
            f"the block at {place} has version {version}",
            detail=f"this Strandline reads versions {_READ[0]} to {_READ[-1]}",
            hint="it was written by another release: start with that one, or from a savepoint",
        )
    if _checksum(memoryview(data)[_HEAD.size :], version) != checksum:
        raise BrokenBlock(
            f"the block at {place} is damaged",
            detail=f"{len(data)} bytes do not match their checksum",
            hint="restore the checkpoint from a copy, or start from a savepoint",
        )
    (length,) = _LENGTH.unpack_from(data, _HEAD.size)
    start = _HEAD.size + _LENGTH.size
    layout = json.loads(data[start : start + length])
    places, at = {}, start + length
    for name, size, *more in layout["frames"]:
        places[name] = (at, [size, *more])
        at += size + (more[0] if more else 0)
    return Packed(data, layout, places)


def _checksum(body: bytes | memoryview, version: int) -> int:
    """From version 3 on the version counts too: damaged, it may be that of an older one."""
    return zlib.crc32(body, version if version >= 3 else 0)


def _alike(frame: pl.DataFrame) -> dict[str, str]:
    """The kernel's own columns that say in every row what another says, with that one's name."""
    found: dict[str, str] = {}
    if frame.height < _WORTH_IT:
        return found
    looks: dict[tuple[Any, ...], list[pl.Series]] = {}
    for column in frame:
        if column.name.startswith(OWN) and (column.dtype.is_integer() or column.dtype == pl.String):
            seen = looks.setdefault((column.dtype, column[0], column[-1], column[frame.height // 2]), [])
            one = next((each for each in seen if each.equals(column)), None)
            if one is None:
                seen.append(column)
            else:
                found[column.name] = one.name
    return found


def _same_throughout(frame: pl.DataFrame) -> list[str]:
    """The kernel's own columns that hold one value, where leaving them out is worth the look."""
    if frame.height < _WORTH_IT:
        return []
    return [column.name for column in frame if column.name.startswith(OWN) and is_one(column)]


def _narrowed(frame: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, int], dict[str, int], dict[str, list[str]]]:
    """The frame in narrow types, where that is worth the look; the least of each such column of integers, or the first
    of those kept as steps; the lists."""
    bases: dict[str, int] = {}
    firsts: dict[str, int] = {}
    lists: dict[str, list[str]] = {}
    if frame.height < _WORTH_IT:
        return frame, bases, firsts, lists
    made: list[pl.Series] = []
    for column in frame:
        name, own = column.name, column.name.startswith(OWN)
        if column.dtype == pl.Int64 and (least := column.min()) is not None:
            low, high = int(cast("int", least)), int(cast("int", column.max()))
            kind, steps = _kind_of(high - low), _steps(column, low, high)
            if steps is not None:
                firsts[name] = low
                made.append(steps)
            elif kind is not None:
                bases[name] = low
                made.append((column - low).cast(kind, wrap_numerical=True))
        elif column.dtype == pl.String and (few := coded(column, VERY_OFTEN)) is not None and few.words.len() <= _MOST:
            lists[name] = few.words.to_list()
            made.append(few.places.cast(pl.UInt8 if few.words.len() <= 1 << 8 else pl.UInt16))
        elif own and column.dtype == pl.String and column.len() < SAMPLED and len(words := _words(column)) <= _FEW:
            lists[name] = words.to_list()
            made.append(column.cast(pl.Enum(lists[name])).to_physical().cast(pl.UInt8))
    return replaced(frame, made), bases, firsts, lists


def _kind_of(span: int) -> "type[pl.DataType] | None":
    """The narrowest type for numbers up to this one."""
    return next((kind for many, kind in _NARROW if span < many), None)


def _steps(column: pl.Series, low: int, high: int) -> pl.Series | None:
    """How far each number is above the one before it, if they rise and this is narrower than how far above the least.

    Those that do begin with the least and end with the greatest, and few others.
    """
    if column.null_count() or column[0] != low or column[-1] != high or (high - low).bit_length() >= _SIGNED:
        return None
    steps = np.diff(column.to_numpy(), prepend=low)
    kind = _kind_of(int(steps.max())) if steps.min() >= 0 else None
    return None if kind is None or kind == _kind_of(high - low) else pl.Series(column.name, steps).cast(kind)


def _risen(frame: pl.DataFrame, firsts: Mapping[str, int]) -> pl.DataFrame:
    """Steps as the numbers that they lead to."""
    names = [name for name in firsts if name in frame.columns]
    return replaced(
        frame, [pl.Series(name, np.cumsum(frame[name].to_numpy(), dtype=np.int64) + firsts[name]) for name in names]
    )


def _words(column: pl.Series) -> pl.Series:
    return column.drop_nulls().unique().sort()


def _widened(
    frame: pl.DataFrame, bases: Mapping[str, int] | Sequence[str], lists: Mapping[str, Sequence[str]]
) -> pl.DataFrame:
    """The frame as it was; of version 3 there are only the names of what is narrow."""
    known = bases if isinstance(bases, Mapping) else dict.fromkeys(bases, 0)
    there = ((name, low) for name, low in known.items() if name in frame.columns)
    wide = [frame[name].cast(pl.Int64, wrap_numerical=True) + low for name, low in there]
    wide += [
        pl.Series(name, words, pl.String).gather(frame[name]) for name, words in lists.items() if name in frame.columns
    ]
    return replaced(frame, wide)


def _whole(frame: pl.DataFrame, same: pl.DataFrame, height: int, order: Sequence[str]) -> pl.DataFrame:
    """A frame with the columns that it was written without."""
    ones = [column.new_from_index(0, height) for column in same if column.name in order]
    return only(frame.hstack(ones) if frame.width else pl.DataFrame(ones), order)


def _plain_bits(frame: pl.DataFrame) -> pl.DataFrame:
    """The same, with nothing behind its last bits: a comparison leaves something there, not always the same."""
    if pl.Boolean not in frame.dtypes:
        return frame
    return pl.DataFrame([
        column.cast(pl.UInt8).cast(pl.Boolean) if column.dtype == pl.Boolean else column for column in frame
    ])  # fmt: skip


def _is_long(frame: pl.DataFrame) -> bool:
    return frame.estimated_size() >= _LONG


def _from_arrow(data: bytes, columns: Iterable[str] | None) -> pl.DataFrame:
    return pl.read_ipc_stream(data, columns=None if columns is None else [*columns])


def _to_arrow(frame: pl.DataFrame) -> bytes:
    out, frame = io.BytesIO(), _plain_bits(frame)
    # Numbers are narrow already; texts and lists become less than half in hardly more time.
    texts = any(kind in _TEXTS or kind.is_nested() for kind in frame.schema.values()) and _is_long(frame)
    # Texts one after another, not as views into buffers: these lie otherwise in memory whenever they were made anew.
    frame.write_ipc_stream(out, compression="zstd" if texts else "uncompressed", compat_level=pl.CompatLevel.oldest())
    return out.getvalue()
