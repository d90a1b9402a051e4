"""Protocols of a dead letter store, and of a source that supports redrive."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Protocol, runtime_checkable

import polars as pl

from strandline.errors import SinkError, StateError
from strandline.kernel.dead_letters import PUBLIC
from strandline.plan.endpoints import DeadLetters

_ID: Final = re.compile(r"[\w-]{1,100}", re.ASCII)
STATE: Final = "state"
REDRIVE: Final = "redrive"
"""The redrive that sent a letter's record back; null if the letter was not redriven."""
NEW, REDRIVEN = "new", "redriven"
TIMES: Final = ("event_time", "first_seen")
_MOMENT: Final = pl.Datetime("us", "UTC")

KEPT: Final = {**PUBLIC, STATE: pl.String, REDRIVE: pl.String}
"""Columns of a stored letter: its envelope and its redrive state."""


@dataclass(frozen=True, slots=True)
class Redrive:
    """A redrive of letters. It is stored before the first record is sent, so that a kill in between is detected."""

    id: str
    letters: tuple[str, ...]
    before: Mapping[str, Any] = field(default_factory=dict)
    """By source, where it ended before, which shows afterwards whether the records have arrived."""

    def __post_init__(self) -> None:
        # A stored id becomes part of file names.
        given: object = self.id  # what a file holds may have any type
        if not isinstance(given, str) or _ID.fullmatch(given) is None:
            raise StateError(f"{str(self.id)[:100]!r} is not the id of a redrive", hint="restore the notes from a copy")


@dataclass(frozen=True, slots=True)
class Marks:
    """Records that mark letters in a store, for a source that can write them in the transaction that sends the
    letters."""

    servers: str
    topic: str
    records: tuple[tuple[bytes, bytes | None], ...]


class LetterStore(Protocol):
    """A store of dead letters. Marked letters stay marked, whatever a replayed job writes."""

    @property
    def name(self) -> str: ...

    def read(self) -> pl.DataFrame:
        """Read every letter once, with the columns of KEPT, ordered by when it was first seen and by its id."""
        ...

    def begun(self) -> Redrive | None:
        """The redrive that was begun and not finished: it is running, or was killed."""
        ...

    def begin(self, redrive: Redrive) -> None:
        """Store a redrive durably; raise an error while another one is begun, or if one of its letters was marked
        since.

        Of two concurrent redrives one is refused.
        """
        ...

    def marks(self, redrive: Redrive, sent: Sequence[str]) -> Marks | None:
        """What `finish` would write, for a source that can write it in its own transaction."""
        ...

    def finish(self, redrive: Redrive, sent: Sequence[str]) -> None:
        """Mark the letters that were sent; the redrive's other letters are new again. Safe to repeat."""
        ...

    def drop(self, ids: Sequence[str]) -> int:
        """Delete letters permanently, and return how many there were."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class PagedLetters(Protocol):
    """A store that reads its letters some at a time, in bounded memory."""

    def pages(self, *, raw: bool = True, id_: str | None = None) -> Iterator[pl.DataFrame]:
        """Read the letters, or the one with this id, in no order; without their records unless `raw`."""
        ...


def pages_of(store: LetterStore, *, raw: bool = True, id_: str | None = None) -> Iterator[pl.DataFrame]:
    """Read the letters of a store in pages if it can, otherwise all at once."""
    if isinstance(store, PagedLetters):
        yield from store.pages(raw=raw, id_=id_)
    else:
        letters = store.read()
        yield letters if id_ is None else letters.filter(pl.col("id") == id_)


@runtime_checkable
class HasDeadLetters(Protocol):
    """A sink or a dead-letter output whose letters can be read."""

    def letters(self) -> LetterStore: ...


class DeadLetterOutput(DeadLetters, HasDeadLetters, Protocol):
    """A dead-letter output whose letters can be read."""


@runtime_checkable
class RedriveTarget(Protocol):
    """A source that supports redrive."""

    @property
    def name(self) -> str: ...

    def not_redrivable(self, letters: pl.DataFrame) -> dict[str, str]:
        """By id, why a letter cannot be redriven; letters without an entry can."""
        ...

    def end_positions(self, letters: pl.DataFrame) -> Any:
        """The end positions of the source for these letters, as JSON."""
        ...

    def redrive_records(self, letters: pl.DataFrame, redriven: Redrive, marks: Marks | None) -> tuple[str, ...]:
        """Write records again, all or none, and return the letters whose records have arrived.

        Another process may have done so already for this redrive, or may be doing so: the records arrive once. A source
        that can writes `marks` in the same transaction.
        """
        ...


def now() -> str:
    """The current time, for a mark."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def refuse_overlap(redrive: Redrive, known: Redrive | None, marked: Collection[str], where: str) -> None:
    """Raise an error if another redrive is in progress, or has sent one of these letters. Call it under the store's
    lock."""
    if known is not None:
        raise SinkError(f"another redrive of {where} is in progress", hint="wait for it, then try again")
    sent = [each for each in redrive.letters if each in marked]
    if sent:
        raise SinkError(
            f"another redrive of {where} has just sent {len(sent)} of these letters", hint="try again for the others"
        )


def marked(letters: pl.DataFrame, redriven: Mapping[str, str]) -> pl.DataFrame:
    """Add the redrive state to envelopes, and remove duplicate ids."""
    once = letters.filter(pl.col("id").is_first_distinct() | pl.col("id").is_null())
    marks = pl.Series(REDRIVE, [redriven.get(each) for each in once["id"]], pl.String)
    state = pl.when(pl.col(REDRIVE).is_null()).then(pl.lit(NEW)).otherwise(pl.lit(REDRIVEN)).alias(STATE)
    return in_order(once.with_columns(marks).with_columns(state).select(*KEPT))


def envelopes(rows: pl.DataFrame) -> pl.DataFrame:
    """Normalize envelopes from files and tables: convert times to milliseconds, and add missing columns."""
    if rows.is_empty():
        return pl.DataFrame(schema=PUBLIC)
    whole = rows.with_columns(pl.lit(None).alias(name) for name in PUBLIC if name not in rows.columns)
    converted = whole.with_columns(pl.col(name).cast(_MOMENT).dt.timestamp("ms") for name in TIMES)
    return converted.select(pl.col(name).cast(kind) for name, kind in PUBLIC.items())


def in_order(letters: pl.DataFrame) -> pl.DataFrame:
    """Sort letters, oldest first."""
    return letters.select(pl.col(name).cast(kind) for name, kind in KEPT.items()).sort(
        "first_seen", "source", "source_partition", "source_offset", "id", nulls_last=True
    )
