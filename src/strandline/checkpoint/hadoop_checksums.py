"""Hadoop's checksums: beside each file that Spark keeps a hidden one, with a CRC of every 512 bytes of it."""

import struct
import zlib
from enum import Enum
from pathlib import Path
from typing import Final

_HEAD: Final = struct.Struct(">4sI")
_MAGIC: Final = b"crc\0"
_CHUNK: Final = 512
_SUM: Final = 4
_READ: Final = 2**20


class Sums(Enum):
    """What a file's checksums say of it."""

    FIT = "they fit"
    DIFFER = "they do not fit"
    UNREADABLE = "they cannot be read"
    """Spark then reads the file without them."""
    ABSENT = "there are none"


def beside(path: Path) -> Path:
    """Where the checksums of a file are."""
    return path.with_name(f".{path.name}.crc")


def is_checksum(path: Path) -> bool:
    return path.name.startswith(".") and path.suffix == ".crc"


def of_checksum(path: Path) -> Path:
    """The file whose checksums these are."""
    return path.with_name(path.name.removeprefix(".").removesuffix(".crc"))


def checksums(data: bytes) -> bytes:
    """What Hadoop would write beside a file with these bytes."""
    sums = (zlib.crc32(data[at : at + _CHUNK]) for at in range(0, len(data), _CHUNK))
    return _HEAD.pack(_MAGIC, _CHUNK) + b"".join(each.to_bytes(_SUM, "big") for each in sums)


def judge_sums(path: Path, *, deep: bool = True) -> Sums:
    """Whether a file is what it was when it was written; if not `deep`, whether it has its length, about."""
    try:
        said = beside(path).read_bytes()
    except FileNotFoundError:
        return Sums.ABSENT
    if len(said) < _HEAD.size:
        return Sums.UNREADABLE
    magic, chunk = _HEAD.unpack_from(said)
    if magic != _MAGIC or chunk < 1:
        return Sums.UNREADABLE
    if len(said) - _HEAD.size != _SUM * -(-path.stat().st_size // chunk):
        return Sums.DIFFER
    return Sums.DIFFER if deep and not _fit(path, said, chunk) else Sums.FIT


def _fit(path: Path, said: bytes, chunk: int) -> bool:
    at = _HEAD.size
    with path.open("rb") as file:
        while data := memoryview(file.read(chunk * max(_READ // chunk, 1))):
            for start in range(0, len(data), chunk):
                if zlib.crc32(data[start : start + chunk]) != int.from_bytes(said[at : at + _SUM], "big"):
                    return False
                at += _SUM
    return True
