"""What a place that keeps dead letters must do, and a source that takes records back."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Protocol, runtime_checkable

import polars as pl

from strandline.errors import SinkError
from strandline.kernel.dead_letters import PUBLIC
from strandline.plan.endpoints import DeadLetters

STATE: Final = "state"
REDRIVE: Final = "redrive"
"""The redrive that sent a letter's record back; null for one that still lies here."""
NEW, REDRIVEN = "new", "redriven"
TIMES: Final = ("event_time", "first_seen")
_MOMENT: Final = pl.Datetime("us", "UTC")

KEPT: Final = {**PUBLIC, STATE: pl.String, REDRIVE: pl.String}
"""What is told of a letter that is kept: its envelope, and what became of it since."""


@dataclass(frozen=True, slots=True)
class Redrive:
    """Letters on their way back. It is kept before the first is sent, so that a kill in between can be told."""

    id: str
    letters: tuple[str, ...]
    before: Mapping[str, Any] = field(default_factory=dict)
    """By source, where it ended before: what tells afterwards whether the records have arrived."""


@dataclass(frozen=True, slots=True)
class Marks:
    """What a store would write to mark letters, for a source that can do it in the transaction that sends them."""

    servers: str
    topic: str
    records: tuple[tuple[bytes, bytes | None], ...]


class LetterStore(Protocol):
    """Where dead letters are kept. What is marked stays marked, whatever a job that is played again writes."""

    @property
    def name(self) -> str: ...

    def read(self) -> pl.DataFrame:
        """Every letter once, as KEPT, by when it was first seen and its id."""
        ...

    def begun(self) -> Redrive | None:
        """The redrive that was begun and not finished: one that runs, or one that was killed."""
        ...

    def begin(self, redrive: Redrive) -> None:
        """Keeps a redrive durably; refused while one is begun, and if one of its letters is marked meanwhile.

        Of two that come at the same time one is refused.
        """
        ...

    def marks(self, redrive: Redrive, sent: Sequence[str]) -> Marks | None:
        """What `finish` would write, where a transaction of a source could write it in its place."""
        ...

    def finish(self, redrive: Redrive, sent: Sequence[str]) -> None:
        """Marks the letters that were sent; those of the redrive that were not are new again. May come twice."""
        ...

    def drop(self, ids: Sequence[str]) -> int:
        """Deletes letters for good, and says how many there were."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class KeepsLetters(Protocol):
    """A sink, or a place for dead letters, that can be asked for them."""

    def letters(self) -> LetterStore: ...


class KeptApart(DeadLetters, KeepsLetters, Protocol):
    """A place for dead letters."""


@runtime_checkable
class TakesBack(Protocol):
    """A source that dead letters can go back to."""

    @property
    def name(self) -> str: ...

    def why_not(self, letters: pl.DataFrame) -> dict[str, str]:
        """By id, why a letter cannot go back; those that are not named can."""
        ...

    def standing(self, letters: pl.DataFrame) -> Any:
        """Where the source ends now, as JSON, as far as these letters go back there."""
        ...

    def take_back(self, letters: pl.DataFrame, redriven: Redrive, marks: Marks | None) -> tuple[str, ...]:
        """Sends records again, all or none, and returns the letters whose records are there then.

        A redrive of this id may have done so already, or may be at it in another process: the records come once. A
        source that can writes `marks` in the same transaction.
        """
        ...


def now() -> str:
    """The time of a mark."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def refuse_overlap(redrive: Redrive, known: Redrive | None, marked: Collection[str], where: str) -> None:
    """Asked where nobody else can begin one: another redrive is under way, or has sent one of these letters."""
    if known is not None:
        raise SinkError(f"another redrive of {where} has begun", hint="let it end, then try again")
    sent = [each for each in redrive.letters if each in marked]
    if sent:
        raise SinkError(
            f"another redrive of {where} has just sent {len(sent)} of these letters", hint="try again for the others"
        )


def marked(letters: pl.DataFrame, redriven: Mapping[str, str]) -> pl.DataFrame:
    """Envelopes, each id once, with the redrives that sent them back, as far as there are any."""
    once = letters.filter(pl.col("id").is_first_distinct() | pl.col("id").is_null())
    marks = pl.Series(REDRIVE, [redriven.get(each) for each in once["id"]], pl.String)
    state = pl.when(pl.col(REDRIVE).is_null()).then(pl.lit(NEW)).otherwise(pl.lit(REDRIVEN)).alias(STATE)
    return in_order(once.with_columns(marks).with_columns(state).select(*KEPT))


def envelopes(rows: pl.DataFrame) -> pl.DataFrame:
    """Envelopes from rows under public names, as files and tables have them: times are moments, columns may lack."""
    if rows.is_empty():
        return pl.DataFrame(schema=PUBLIC)
    whole = rows.with_columns(pl.lit(None).alias(name) for name in PUBLIC if name not in rows.columns)
    told = whole.with_columns(pl.col(name).cast(_MOMENT).dt.timestamp("ms") for name in TIMES)
    return told.select(pl.col(name).cast(kind) for name, kind in PUBLIC.items())


def in_order(letters: pl.DataFrame) -> pl.DataFrame:
    """Letters as they are told: oldest first."""
    return letters.select(pl.col(name).cast(kind) for name, kind in KEPT.items()).sort(
        "first_seen", "source", "source_partition", "source_offset", "id", nulls_last=True
    )
