"""Verify and write Hadoop's checksum files: a hidden file beside each, with a CRC32 of every 512 bytes."""

import struct
import zlib
from enum import Enum
from pathlib import Path
from typing import Final

_HEAD: Final = struct.Struct(">4sI")
_MAGIC: Final = b"crc\0"
_CHUNK: Final = 512
_SUM: Final = 4
_BUFFER: Final = 2**20


class Sums(Enum):
    """The result of verifying a file's checksums."""

    FIT = "they fit"
    DIFFER = "they do not fit"
    UNREADABLE = "they cannot be read"
    """Spark reads the file without them."""
    ABSENT = "there are none"


def beside(path: Path) -> Path:
    """Return the path of a file's checksums."""
    return path.with_name(f".{path.name}.crc")


def is_checksum(path: Path) -> bool:
    return path.name.startswith(".") and path.suffix == ".crc"


def of_checksum(path: Path) -> Path:
    """Return the file that a checksum file belongs to."""
    return path.with_name(path.name.removeprefix(".").removesuffix(".crc"))


def checksums(data: bytes) -> bytes:
    """Return the checksum file that Hadoop writes for these bytes."""
    sums = (zlib.crc32(data[at : at + _CHUNK]) for at in range(0, len(data), _CHUNK))
    return _HEAD.pack(_MAGIC, _CHUNK) + b"".join(each.to_bytes(_SUM, "big") for each in sums)


def judge_sums(path: Path, *, deep: bool = True) -> Sums:
    """Verify a file against its checksums; if not `deep`, only its approximate length."""
    try:
        stored = beside(path).read_bytes()
    except FileNotFoundError:
        return Sums.ABSENT
    if len(stored) < _HEAD.size:
        return Sums.UNREADABLE
    magic, chunk = _HEAD.unpack_from(stored)
    if magic != _MAGIC or chunk < 1:
        return Sums.UNREADABLE
    if len(stored) - _HEAD.size != _SUM * -(-path.stat().st_size // chunk):
        return Sums.DIFFER
    return Sums.DIFFER if deep and not _matches(path, stored, chunk) else Sums.FIT


def _matches(path: Path, stored: bytes, chunk: int) -> bool:
    at = _HEAD.size
    with path.open("rb") as file:
        while data := memoryview(file.read(chunk * max(_BUFFER // chunk, 1))):
            for start in range(0, len(data), chunk):
                if zlib.crc32(data[start : start + chunk]) != int.from_bytes(stored[at : at + _SUM], "big"):
                    return False
                at += _SUM
    return True
