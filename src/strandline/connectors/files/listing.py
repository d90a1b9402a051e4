"""What Spark has listed against what is there: files that are gone, that have changed, that wait to be read."""

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from strandline.errors import LostRecords
from strandline.ports.remote_files import remote_files
from strandline.ports.sources import ListedFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG: Final = logging.getLogger("strandline.files")
_SHOWN: Final = 3
_LOCAL: Final = "file"
_OF_LOCAL: Final = re.compile(r"^file:(//)?(?=/)")
"""In what a user gives, as Hadoop reads it: one slash or three, and signs as they are."""
_UNSAID: Final = "\ufffd"
_UNREADABLE: Final = "has a name that is no UTF-8: rename it"
_SCHEME: Final = re.compile(r"^[A-Za-z][\w+.-]*:")


@dataclass(frozen=True, slots=True)
class Waiting:
    """Files that are there and have not been listed yet."""

    files: int
    bytes: int
    oldest: int | None
    """When the oldest of them was written, in milliseconds; None if there is none."""


def refuse_gone(
    source: str, given: Sequence[ListedFile], read: Sequence[ListedFile], spark: "SparkSession", *, goes_on: bool
) -> None:
    """Raises if a file given to a batch vanished or changed, or one that was read before changed.

    What was read may be gone. What is written to once more will not be read again.
    """
    problems: list[str] = []
    for file in given:
        found = modified(file.path, spark)
        if found is None:
            problems.append(f"{file.path} {_UNREADABLE if is_unsaid(file.path) else 'vanished'}")
        elif found != file.modified:
            problems.append(f"{file.path} changed")
    problems += [
        f"{file.path} changed" for file in read if modified(file.path, spark, quick=True) not in (None, file.modified)
    ]
    if not problems:
        return
    told = ", ".join(problems[:_SHOWN]) + (f" and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else "")
    if goes_on:
        _LOG.warning("%s goes on without all records: after they were listed, %s", source, told)
        return
    raise LostRecords(
        f"{len(problems)} files of {source} are not what they were when they were listed",
        detail=told,
        hint="write a file elsewhere and move it in when it is whole; files(…, on_lost='continue') takes what is there",
    )


def is_unsaid(uri: str) -> bool:
    """Whether there is something in the name that the JVM cannot say, so that nobody finds the file by it."""
    return _UNSAID in unquote(uri)


def modified(uri: str, spark: "SparkSession", *, quick: bool = False) -> int | None:
    """When a file was last written, in milliseconds; None if it is not there, or could only be found out slowly."""
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
    return _left(_there(folder, pattern, spark), listed) if here is None else here


def waiting_here(folder: str, pattern: str | None, listed: frozenset[str]) -> Waiting | None:
    """The same without Spark; None where only Spark knows the file system, or what a pattern means."""
    place = _OF_LOCAL.sub("", folder)
    if _SCHEME.match(place) or any(sign in place for sign in "*?[{") or "{" in (pattern or ""):
        return None
    return _left(_here(Path(place).absolute(), pattern), listed)


def _left(there: Iterable[tuple[str, int, int]], listed: frozenset[str]) -> Waiting:
    known = {_place(uri) for uri in listed}
    left = [(size, at) for uri, size, at in there if _place(uri) not in known]
    return Waiting(len(left), sum(size for size, _ in left), min((at for _, at in left), default=None))


def _here(folder: Path, pattern: str | None) -> Iterator[tuple[str, int, int]]:
    for file in folder.glob(pattern or "*"):
        if file.is_file() and not file.name.startswith(("_", ".")):
            told = file.stat()
            yield file.as_uri(), told.st_size, told.st_mtime_ns // 1_000_000


def _place(uri: str) -> tuple[str, str, str]:
    """Where a URI leads: `file:/in/a` and `file:///in/a` are one file."""
    parts = urlsplit(uri)
    return parts.scheme, parts.netloc, unquote(parts.path)


def _there(folder: str, pattern: str | None, spark: "SparkSession") -> Iterator[tuple[str, int, int]]:
    """Each file with its size and when it was written, as Spark would find them."""
    for file in remote_files(spark).matching(folder.rstrip("/") + "/" + (pattern or "*")):
        if not file.name.startswith(("_", ".")):
            yield file.uri, file.size, file.modified
