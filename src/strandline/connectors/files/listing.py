"""Compare the files that Spark listed with those in the folder: deleted, changed, and waiting files."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from strandline.errors import LostRecords
from strandline.ports.remote_files import remote_files
from strandline.ports.sources import ListedFile
from strandline.redaction import logger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG: Final = logger("strandline.files")
_SHOWN: Final = 3
_LOCAL: Final = "file"
_LOCAL_SCHEME: Final = re.compile(r"^file:(//)?(?=/)")
"""Scheme of a local path as Hadoop reads it: one slash or three, and characters unescaped."""
_REPLACEMENT: Final = "\ufffd"
_UNREADABLE: Final = "has a name that is not UTF-8: rename it"
_SCHEME: Final = re.compile(r"^[A-Za-z][\w+.-]*:")


@dataclass(frozen=True, slots=True)
class Waiting:
    """Files that exist and have not been listed yet."""

    files: int
    bytes: int
    oldest: int | None
    """When the oldest of them was written, in milliseconds; None if there is none."""


def refuse_gone(
    source: str, given: Sequence[ListedFile], read: Sequence[ListedFile], spark: "SparkSession", *, goes_on: bool
) -> None:
    """Raise an error if a file of this batch vanished or changed, or if an earlier file changed.

    Files that were read may be deleted. New content of such a file would not be read again.
    """
    problems: list[str] = []
    for file in given:
        found = modified(file.path, spark)
        if found is None:
            problems.append(f"{file.path} {_UNREADABLE if is_undecodable(file.path) else 'vanished'}")
        elif found != file.modified:
            problems.append(f"{file.path} changed")
    problems += [
        f"{file.path} changed" for file in read if modified(file.path, spark, quick=True) not in (None, file.modified)
    ]
    if not problems:
        return
    detail = ", ".join(problems[:_SHOWN])
    if len(problems) > _SHOWN:
        detail += f" and {len(problems) - _SHOWN} more"
    if goes_on:
        _LOG.warning("%s continues with missing records: after its files were listed, %s", source, detail)
        return
    raise LostRecords(
        f"{len(problems)} files of {source} vanished or changed after they were listed",
        detail=detail,
        hint="write files elsewhere and move them in when complete; files(…, on_lost='continue') reads what is left",
    )


def is_undecodable(uri: str) -> bool:
    """Whether the name has characters that the JVM could not decode, so that no file is found by it."""
    return _REPLACEMENT in unquote(uri)


def modified(uri: str, spark: "SparkSession", *, quick: bool = False) -> int | None:
    """When a file was last written, in milliseconds; None if it does not exist, or if `quick` forbids a slow lookup."""
    parts = urlsplit(uri)
    if parts.scheme in ("", _LOCAL):
        try:
            return Path(unquote(parts.path)).stat().st_mtime_ns // 1_000_000
        except OSError:
            return None
    if quick:
        return None
    return remote_files(spark).modified(uri)


def waiting(folder: str, pattern: str | None, listed: frozenset[str], spark: "SparkSession") -> Waiting:
    """The files of a folder that are not among those listed."""
    # The JVM takes several calls for each file, so local folders are listed here.
    here = waiting_here(folder, pattern, listed) if remote_files(spark).scheme(folder) == _LOCAL else None
    return _not_listed(_hadoop_files(folder, pattern, spark), listed) if here is None else here


def waiting_here(folder: str, pattern: str | None, listed: frozenset[str]) -> Waiting | None:
    """Find them without Spark; None where only Spark knows the file system or the pattern."""
    place = _LOCAL_SCHEME.sub("", folder)
    if _SCHEME.match(place) or any(sign in place for sign in "*?[{") or "{" in (pattern or ""):
        return None
    return _not_listed(_local_files(Path(place).absolute(), pattern), listed)


def _not_listed(there: Iterable[tuple[str, int, int]], listed: frozenset[str]) -> Waiting:
    known = {_normalized(uri) for uri in listed}
    left = [(size, at) for uri, size, at in there if _normalized(uri) not in known]
    return Waiting(len(left), sum(size for size, _ in left), min((at for _, at in left), default=None))


def _local_files(folder: Path, pattern: str | None) -> Iterator[tuple[str, int, int]]:
    for file in folder.glob(pattern or "*"):
        if file.is_file() and not file.name.startswith(("_", ".")):
            status = file.stat()
            yield file.as_uri(), status.st_size, status.st_mtime_ns // 1_000_000


def _normalized(uri: str) -> tuple[str, str, str]:
    """Normalize a URI: `file:/in/a` and `file:///in/a` are one file."""
    parts = urlsplit(uri)
    return parts.scheme, parts.netloc, unquote(parts.path)


def _hadoop_files(folder: str, pattern: str | None, spark: "SparkSession") -> Iterator[tuple[str, int, int]]:
    """Each file with its size and when it was written, as Spark would find them."""
    for file in remote_files(spark).matching(folder.rstrip("/") + "/" + (pattern or "*")):
        if not file.name.startswith(("_", ".")):
            yield file.uri, file.size, file.modified
