"""Look at files that only Spark can reach. Connectors ask here; `spark/patches/hadoop_files.py` answers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class FileStatus:
    """A file as its file system describes it: `modified` is in milliseconds, `size` in bytes."""

    uri: str
    name: str
    size: int
    modified: int


class RemoteFiles(Protocol):
    """The file systems that a Spark session can reach."""

    def scheme(self, uri: str) -> str:
        """Return the scheme of the file system that holds this path: `file`, `hdfs`, `s3a`."""
        ...

    def modified(self, uri: str) -> int | None:
        """Return the modification time in milliseconds; None if the file does not exist."""
        ...

    def matching(self, pattern: str) -> Iterator[FileStatus]:
        """Return the files that match a glob pattern."""
        ...


_providers: "list[Callable[[SparkSession], RemoteFiles]]" = []


def provide(files: "Callable[[SparkSession], RemoteFiles]") -> None:
    """Register what opens the file systems of a session. Called once, when `spark/launch` is imported."""
    _providers[:] = [files]


def remote_files(spark: "SparkSession") -> RemoteFiles:
    """Open the file systems that this session can reach."""
    return _providers[0](spark)
