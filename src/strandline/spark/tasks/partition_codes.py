"""Send numbers instead of partition names to Python: a path would be most of the bytes of a small row.

The number of a file is Spark's xxhash64 of its path. The driver knows the files of a batch and sends their numbers to
every task. So a path is written once a task and not once a row. Partitions of a topic have numbers already.
"""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import polars as pl

from strandline.kernel.blocks.block import OFFSET, PARTITION
from strandline.ports.raw_records import PARTITION_CODE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NOWHERE: Final = re.compile(r"^([\w+.-]+:)///")
_RAW: Final = "partition"
_WORD: Final = (1 << 64) - 1
_SEED: Final = 42
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def without_names(frame: "DataFrame") -> "DataFrame":
    """Replace the file name of each row by its number."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - Spark's own habit; tasks do without it

    name = PARTITION if PARTITION in frame.columns else _RAW
    if name not in frame.columns:
        return frame
    others = [F.col(f"`{each}`") for each in frame.columns if each != name]
    return frame.select(*others, F.xxhash64(f"`{name}`").alias(PARTITION_CODE))


def with_names(frame: pl.DataFrame, files: Mapping[int, str], topic: str | None = None) -> pl.DataFrame:
    """Replace numbers by partition names. A file that the driver did not list is named by its number."""
    if PARTITION_CODE not in frame.columns:
        return frame
    numbers, name = frame[PARTITION_CODE], PARTITION if OFFSET in frame.columns else _RAW
    first = numbers[0] if len(numbers) else 0
    if (numbers == first).all():
        return frame.drop(PARTITION_CODE).with_columns(pl.lit(_name(first, files, topic), pl.String).alias(name))
    found = numbers.unique().to_list()
    names = numbers.replace_strict(found, [_name(each, files, topic) for each in found], return_dtype=pl.String)
    return frame.drop(PARTITION_CODE).with_columns(names.alias(name))


def numbered(paths: Iterable[str]) -> dict[int, str]:
    """Return files by number. Spark lists `file:///path`, and puts `file:/path` into rows."""
    names = [_NOWHERE.sub(r"\1/", path) for path in paths]
    return {number_of(path): path for path in names}


def _name(number: int, files: Mapping[int, str], topic: str | None) -> str:
    if topic is not None:
        return f"{topic}-{number}"
    return files.get(number, f"file {number & _WORD:016x}")


def number_of(name: str) -> int:
    """Compute Spark's xxhash64 of a string."""
    data = name.encode()
    left = memoryview(data)
    if len(data) >= 32:
        state, left = _striped(left)
    else:
        state = _SEED + _P5
    state = state + len(data) & _WORD
    while len(left) >= 8:
        state = _rolled(state ^ _round(0, _number(left[:8])), 27) * _P1 + _P4 & _WORD
        left = left[8:]
    if len(left) >= 4:
        state = _rolled(state ^ _number(left[:4]) * _P1 & _WORD, 23) * _P2 + _P3 & _WORD
        left = left[4:]
    for byte in left:
        state = _rolled(state ^ byte * _P5 & _WORD, 11) * _P1 & _WORD
    for shift, factor in ((33, _P2), (29, _P3)):
        state = (state ^ state >> shift) * factor & _WORD
    state ^= state >> 32
    return state - (1 << 64) if state >> 63 else state


def _striped(data: memoryview) -> tuple[int, memoryview]:
    """Hash all whole stripes of 32 bytes in four lanes; return the merged state and the rest."""
    lanes = [_SEED + _P1 + _P2, _SEED + _P2, _SEED, _SEED - _P1]
    whole = len(data) // 32 * 32
    for at in range(0, whole, 8):
        lane = at // 8 % 4
        lanes[lane] = _round(lanes[lane], _number(data[at : at + 8]))
    state = sum(_rolled(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _WORD
    for lane in lanes:
        state = (state ^ _round(0, lane)) * _P1 + _P4 & _WORD
    return state, data[whole:]


def _round(lane: int, word: int) -> int:
    return _rolled(lane + word * _P2 & _WORD, 31) * _P1 & _WORD


def _number(data: memoryview) -> int:
    return int.from_bytes(data, "little")


def _rolled(word: int, by: int) -> int:
    word &= _WORD
    return (word << by | word >> 64 - by) & _WORD
