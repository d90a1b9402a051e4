"""Define what a source must offer to run on Spark, and what it may offer besides."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import polars as pl

from strandline.plan.endpoints import Source
from strandline.ports.codecs import Decoder

if TYPE_CHECKING:  # a pipeline is written and checked without loading Spark
    from pyspark.sql import DataFrame, SparkSession


class SparkSource(Source, Protocol):
    """A source that Spark can read. The same range of offsets always gives the same records."""

    @property
    def decoder(self) -> Decoder | None:
        """Return how its records are decoded; None if Spark decodes them."""
        ...

    def stream(self, spark: "SparkSession") -> "DataFrame":
        """Return a stream of raw records (RAW_COLUMNS); without a decoder, a stream of the decoded columns.

        Decoded columns may come with PARTITION and OFFSET, which identify each record.
        """
        ...


@runtime_checkable
class NamedInputs(Protocol):
    """A source that can tell, without Spark, whether what it names exists."""

    def refuse_missing(self) -> None:
        """Raise if a topic of it does not exist. Called before Spark starts."""
        ...


@runtime_checkable
class CommittingSource(Protocol):
    """A source that commits a job's offsets to an external system, and that may lose records."""

    def partitions_at(self, offsets: Any) -> tuple[str, ...]:
        """Return the partitions that these offsets name, including those without records."""
        ...

    def refuse_lost(self, offsets: Any) -> None:
        """Raise if records after these offsets are gone. Called before a job goes on from them."""
        ...

    def delivered(self, job: str, offsets: Any) -> None:
        """Commit the offsets at the end of a batch that all sinks hold."""
        ...


@runtime_checkable
class IdentifiedSource(Protocol):
    """A source whose logs have an identity, so that one that was deleted and made anew is told from the old one."""

    def identities(self) -> "Mapping[str, str | None] | None":
        """Return the identity of each log by its name; None for a log that does not exist.

        Returns None if nothing can be asked now. A log whose system knows no identities is left out.
        """
        ...


@runtime_checkable
class BoundedSource(Protocol):
    """A source that can be read to an end. Its extent is looked up once, and stored before it is read."""

    @property
    def ends(self) -> bool:
        """Whether the user asked to read only what is there when the job starts."""
        ...

    def extent(self, spark: "SparkSession") -> Any:
        """Return what is there now, as plain values. The same extent always gives the same records."""
        ...

    def within(self, extent: Any) -> "SparkSource":
        """Return this source limited to an extent."""
        ...

    def table(self, extent: Any, spark: "SparkSession") -> "DataFrame | None":
        """Return all records of an extent, with the columns of `stream`; None if there are none."""
        ...

    def refuse_changed(self, extent: Any, spark: "SparkSession") -> None:
        """Raise if what was read differs from the extent. Called before the rows count."""
        ...


@runtime_checkable
class SplittableSource(Protocol):
    """A bounded source that tasks can read in Python, without Spark rows."""

    def pieces(self, extent: Any) -> "list[Any] | None":
        """Return one piece for each task, as plain values; None if Spark reads it faster."""
        ...

    def reader(self, extent: Any) -> "Callable[[Any], pl.DataFrame]":
        """Return a function from a piece to rows, with the columns of `stream`. It is sent to tasks."""
        ...


@runtime_checkable
class TaskReadSource(Protocol):
    """A streaming source of files that tasks can read in Python. Spark lists the files and sends only their names."""

    @property
    def is_plain(self) -> bool:
        """Whether tasks can read these files on this machine; else Spark reads them."""
        ...

    def names(self, spark: "SparkSession") -> "DataFrame":
        """Return a stream of URIs in the column FILE_NAME, with the same offsets as `stream`."""
        ...

    def by_name(self) -> "Callable[[Sequence[str]], Iterator[pl.DataFrame]]":
        """Return a function from URIs to chunks of rows, with the columns of `stream`. It is sent to tasks."""
        ...


@runtime_checkable
class TopicSource(Protocol):
    """A source of topics that Spark's Kafka source reads."""

    @property
    def alone(self) -> str | None:
        """Return the topic if there is only one. Then partitions cross to Python as numbers."""
        ...

    @property
    def crosses_packed(self) -> bool:
        """Whether many records may share a row, in a session that has the class for it."""
        ...

    def longest(self) -> int | None:
        """Return the largest size of a record in bytes, if the broker tells."""
        ...


@dataclass(frozen=True, slots=True)
class Position:
    """A job's position in a partition, and the partition's end."""

    partition: str
    reached: int
    end: int
    earlier: tuple[tuple[int, int], ...] = ()
    """Where the partition ended at earlier times: (milliseconds, offset), oldest first."""


@dataclass(frozen=True, slots=True)
class KnownEnds:
    """Where the partitions of a source end now, and where they ended before the job began to ask."""

    now: Mapping[str, int] = field(default_factory=dict)
    earlier: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)


class EndReader(Protocol):
    """Asks a service where partitions end. Called by one thread. Names are those of `partitions_at`."""

    def ends(self) -> Mapping[str, int]:
        """Return the end of each partition; raise SourceUnavailable within a few seconds without an answer."""
        ...

    def ends_at(self, ms: int) -> Mapping[str, int]:
        """Return where the partitions ended at a time, by the timestamps of their records."""
        ...


@runtime_checkable
class LogSource(Protocol):
    """A source of partitions with offsets, whose service tells where they end without Spark."""

    @property
    def name(self) -> str: ...

    def end_reader(self) -> EndReader | None:
        """Return a client for the end offsets; None if the package for it is not installed."""
        ...

    def positions(self, offsets: Any, ends: KnownEnds) -> tuple[Position, ...]:
        """Return the position in each partition of these offsets whose end is known."""
        ...


def topic_of(source: object) -> str | None:
    """Return the topic whose partitions cross to Python as numbers."""
    return source.alone if isinstance(source, TopicSource) else None


@runtime_checkable
class BackfillTarget(Protocol):
    """A source that a job can continue with after a backfill."""

    def beginning(self, at: Any = None) -> Any:
        """Return the offsets to start at, as Spark writes them: the given ones, or those of its own options."""
        ...


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file in Spark's log of a file source: its URI and its modification time in milliseconds."""

    path: str
    modified: int


@runtime_checkable
class FileListSource(Protocol):
    """A source that Spark reads as a list of files. Its offsets only count lists, which Spark keeps in another log."""

    def refuse_gone(self, given: Sequence[ListedFile], read: Sequence[ListedFile], spark: "SparkSession") -> None:
        """Raise if a file of this batch vanished or changed, or one of an earlier batch changed.

        Called before a batch counts.
        """
        ...

    def waiting(self, listed: frozenset[str], spark: "SparkSession") -> Any:
        """Return the backlog: the files that are not listed yet."""
        ...
