"""What Spark asks of a connector: a source of raw records, a way to decode them, a sink with a ledger."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import polars as pl

from strandline.kernel import dead_letters
from strandline.kernel.output import Output, Part
from strandline.plan.endpoints import DeadLetters, Sink, Source
from strandline.plan.stages import Deliver
from strandline.ports.ledger import LedgerEntry, Recorded, Written

__all__ = [
    "DETAIL", "FILE_NAME", "RAW", "REASON", "SIZE", "ByName", "Continuing", "Decoded", "Decoder", "Encoder", "Ending",
    "Followed", "InParts", "InPieces", "LedgerEntry", "LetterBox", "Masked", "Masking", "OpenLetters", "OpenSink",
    "Recorded", "Refuses", "SparkSink", "SparkSource", "Stamp", "Writer", "Written",
]  # fmt: skip

if TYPE_CHECKING:  # a pipeline is written and checked without loading Spark
    from pyspark.sql import DataFrame, SparkSession

RAW: Final = dead_letters.RAW
REASON: Final = dead_letters.REASON
DETAIL: Final = dead_letters.DETAIL

SIZE: Final = "@size"
"""Beside the columns of raw records: how long a record is that its source cut, since nobody would read one so long;
null for the others."""
SPLIT: Final = "@split"
"""A column of sources whose records are lines: whether a file is read in several blocks. The partition is then the
file, the offset the byte its block starts at, and the lines of a block come in their order."""
FILE_NAME: Final = "file"
"""The column of a stream of names."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Records as columns, and those that could not be read, with REASON and DETAIL."""

    rows: pl.DataFrame
    dead: pl.DataFrame


class Decoder(Protocol):
    """Turns whole batches of bytes into columns; one bad record never takes another down."""

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def types(self) -> Mapping[str, str]:
        """Each column's type, as DDL writes it."""
        ...

    def decode(self, raw: pl.DataFrame) -> Decoded: ...


class Encoder(Protocol):
    """Turns rows into bytes, a record a row."""

    def encode(self, rows: pl.DataFrame) -> pl.Series: ...


@runtime_checkable
class Masking(Protocol):
    """A decoder that can hide fields in a record's own bytes."""

    def mask(self, value: bytes, fields: frozenset[str]) -> "Masked | None":
        """The record without what the fields say; None if it cannot be told apart, so that all must be withheld."""
        ...


@dataclass(frozen=True, slots=True)
class Masked:
    """A record with fields hidden, and what they had said."""

    value: bytes
    hidden: tuple[str, ...]


class SparkSource(Source, Protocol):
    """A source that Spark can read: the same range of positions gives the same records, always."""

    @property
    def decoder(self) -> Decoder | None:
        """How its records are read; None where Spark has read them already."""
        ...

    def stream(self, spark: "SparkSession") -> "DataFrame":
        """Raw records, as RAW_COLUMNS; without a decoder, the columns themselves.

        Those may have the columns PARTITION and OFFSET beside them, by which records are found again.
        """
        ...


@runtime_checkable
class Followed(Protocol):
    """A source whose positions others can see, and may lose."""

    def partitions_at(self, offsets: Any) -> tuple[str, ...]:
        """The partitions that positions tell of, quiet ones too."""
        ...

    def refuse_lost(self, offsets: Any) -> None:
        """Before a job goes on from these positions: raises if what comes after them is gone."""
        ...

    def delivered(self, job: str, offsets: Any) -> None:
        """After a batch that ended at these positions."""
        ...


@runtime_checkable
class Ending(Protocol):
    """A source that can be read to an end. What is in it is looked up once, and written down before it is read."""

    @property
    def ends(self) -> bool:
        """Whether it was asked to: what is there when a job starts is then all there is."""
        ...

    def extent(self, spark: "SparkSession") -> Any:
        """What is there now, as plain values: the same extent gives the same records, always."""
        ...

    def within(self, extent: Any) -> "SparkSource":
        """The same source, which has this extent and nothing beyond it."""
        ...

    def table(self, extent: Any, spark: "SparkSession") -> "DataFrame | None":
        """The records of an extent all at once, under the columns of `stream`; None if there are none."""
        ...

    def refuse_changed(self, extent: Any, spark: "SparkSession") -> None:
        """Before what was read counts: raises if it was not what the extent says."""
        ...


@runtime_checkable
class InPieces(Protocol):
    """A source that ends, and that Python can read by itself: its rows need not pass through Spark first."""

    def pieces(self, extent: Any) -> "list[Any] | None":
        """What each task is to read, as plain values; None if it is better read by Spark."""
        ...

    def reader(self, extent: Any) -> "Callable[[Any], pl.DataFrame]":
        """From a piece to rows, as the columns of `stream`; it travels to the tasks."""
        ...


@runtime_checkable
class OfTopics(Protocol):
    """A source of records that Spark itself reads from topics."""

    @property
    def alone(self) -> str | None:
        """The topic, if there is no other: then its partitions cross as numbers, and have its name before them."""
        ...

    @property
    def crosses_packed(self) -> bool:
        """Whether many records cross in a row, in a session that has the class for it."""
        ...

    def longest(self) -> int | None:
        """The bytes that a record may have, as far as somebody tells."""
        ...


def topic_of(source: object) -> str | None:
    """The topic of which the partitions cross as numbers."""
    return source.alone if isinstance(source, OfTopics) else None


@runtime_checkable
class ByName(Protocol):
    """A source of files that Python can read by itself as they come: Spark lists them, and only their names cross."""

    @property
    def is_plain(self) -> bool:
        """Whether it can here and now; else Spark reads better."""
        ...

    def names(self, spark: "SparkSession") -> "DataFrame":
        """A stream of URIs, as FILE_NAME, under the same positions as `stream`."""
        ...

    def by_name(self) -> "Callable[[Sequence[str]], Iterator[pl.DataFrame]]":
        """From URIs to rows, as the columns of `stream`, some at a time; it travels to the tasks."""
        ...


@runtime_checkable
class Continuing(Protocol):
    """A source that can go on where history ends."""

    def beginning(self, at: Any = None) -> Any:
        """The positions it begins at, as Spark writes them: those given, or as it was asked to start."""
        ...


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file as Spark listed it: its URI, and when it was last written then, in milliseconds."""

    path: str
    modified: int


@runtime_checkable
class Listed(Protocol):
    """A source that is a list of files. Spark keeps the lists by number beside its offsets, which only count them."""

    def refuse_gone(self, given: Sequence[ListedFile], read: Sequence[ListedFile], spark: "SparkSession") -> None:
        """Before a batch counts: raises if files given to it, or some read before, are not what they were."""
        ...

    def waiting(self, listed: frozenset[str], spark: "SparkSession") -> Any:
        """What is there and has not been listed: the backlog."""
        ...


class OpenLetters(Protocol):
    """A place of their own for dead letters, at work."""

    def put(self, letters: pl.DataFrame, entry: LedgerEntry) -> None:
        """Keeps a batch's envelopes before it returns. The same batch may come again; it takes effect once."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class LetterBox(DeadLetters, Protocol):
    """Where dead letters go if not with the panes."""

    def open_letters(self, lineage: str) -> OpenLetters:
        """At work for one output of a job: what it puts is told apart from others' by this name."""
        ...


@runtime_checkable
class Refuses(Protocol):
    """A sink at work that finds out inside its own transaction which rows it does not take."""

    def refused_to(self, keep: Callable[[pl.DataFrame, LedgerEntry], None]) -> None:
        """From now on their letters go there, before the transaction ends, in place of where it keeps them itself."""
        ...


class OpenSink(Protocol):
    """A sink at work. What it is asked to do follows from the delivery; `spark/delivery/deliver.py` has the order.

    exactly once    commit: rows and entry take effect together; the same entry may come again and takes effect once
    at most once    mark: the entry alone, durable; if it was new, write
    at least once   write: rows, durable, whatever the ledger says; the same batch again is written again

    A sink needs only the methods of the deliveries it offers; those of the others may raise. Rows that it will not take
    (a constraint, a type, a length) become dead letters with its message, in the same transaction, or where it was told
    to by `refused_to`, and are counted in `Written.refused`. A fault that may pass is raised as `SinkUnavailable`, any
    other as a `SinkError`, no secret in either. A sink that keeps a ledger asks `ledger.judge` inside its own
    transaction, and passes `crash_point("C9")` with part of the batch sent, `crash_point("C10")` right after it.
    """

    def claim(self, lineage: str) -> int:
        """Raises the lineage's epoch and returns it: whoever had it before can no longer commit, mark or write."""
        ...

    def latest(self, lineage: str) -> Recorded | None:
        """The last batch in the ledger; None where there is none."""
        ...

    def commit(self, output: Output, entry: LedgerEntry) -> Written:
        """Writes a batch with its entry, both or neither; not fresh if it was there already."""
        ...

    def mark(self, output: Output, entry: LedgerEntry) -> Written:
        """Writes the entry alone; not fresh if it was there already."""
        ...

    def write(self, output: Output, entry: LedgerEntry) -> Written:
        """Writes the rows alone, without a look at the ledger other than at its epoch."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Stamp:
    """Who writes: a driver of a job, for a batch."""

    lineage: str
    epoch: int
    batch: int


class Writer(Protocol):
    """Puts rows where a sink keeps them; it travels to the tasks."""

    def put(self, rows: pl.DataFrame, stamp: Stamp) -> Part | None:
        """Durable when it returns, and counting for nobody yet; None if they had better be brought to the sink."""
        ...


@runtime_checkable
class InParts(Protocol):
    """A sink at work that need not see every row: tasks write, and `Output.parts` tells it what was written.

    Parts of an output that it does not take, since it knows the batch already, it removes. Those of a task that died,
    or of an output that never came, count for nobody.
    """

    def writer(self) -> Writer | None: ...

    def swept(self, stamp: Stamp) -> None:
        """After a play of a batch that failed: what its tasks have put is removed."""
        ...


class SparkSink(Sink, Protocol):
    """A sink that a job can open."""

    def open(self, output: Deliver) -> OpenSink:
        """Made ready for an output: its delivery, and the keys that panes are told apart by."""
        ...
