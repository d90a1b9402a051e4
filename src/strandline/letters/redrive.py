"""Redrive dead letters to their sources, each record once, even if a redrive is killed and repeated.

A redrive is stored before anything is sent. Then each source writes its records back, all or none. Then the letters are
marked. The next redrive finds one that was killed in between, and repeats it. A source checks whether the records of a
redrive have arrived before it sends any, so it does not matter whether the first attempt was killed or is only slow.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from strandline.errors import SetupError
from strandline.kernel.dead_letters import SINK_REFUSED
from strandline.letters.store import KEPT, NEW, REDRIVEN, STATE, LetterStore, Redrive, RedriveTarget, in_order, pages_of
from strandline.ports.crash_points import crash_point

AT_ONCE: Final = 1_000
"""The most letters of one redrive; more are sent in several."""

_POSITION: Final = ("source", "source_partition", "source_offset")


@dataclass(frozen=True, slots=True)
class Report:
    """Result of a redrive."""

    sent: tuple[str, ...] = ()
    left: Mapping[str, str] = field(default_factory=dict)
    """By id, why a letter was not sent."""
    completed: tuple[str, ...] = ()
    """Letters of an earlier redrive that was killed, and is finished now."""


def redrive(store: LetterStore, sources: Mapping[str, Any], wanted: Iterable[str]) -> Report:
    """Write the records of these letters back to their sources, by name, and mark the letters."""
    completed = _complete(store, sources)
    ids = frozenset(wanted) - frozenset(completed)
    chosen, left = _select(_letters_at(store, ids), sources, ids)
    sent: list[str] = []
    for start in range(0, chosen.height, AT_ONCE):
        part = chosen[start : start + AT_ONCE]
        some = tuple(part["id"])
        before = {name: sources[name].end_positions(each) for name, each in _by_source(part)}
        one = Redrive(hashlib.sha256(",".join(some).encode()).hexdigest()[:16], some, before)
        store.begin(one)
        crash_point("R1")
        sent += _send(store, sources, one, part)
    return Report(tuple(sent), left, completed)


def predict(store: LetterStore, sources: Mapping[str, Any], wanted: Iterable[str]) -> Report:
    """Predict what a redrive would send, and what would stay."""
    begun = store.begun()
    completed = () if begun is None else begun.letters
    ids = frozenset(wanted) - frozenset(completed)
    chosen, left = _select(_letters_at(store, ids), sources, ids)
    return Report(tuple(chosen["id"]), left, completed)


def _complete(store: LetterStore, sources: Mapping[str, Any]) -> tuple[str, ...]:
    """Finish an earlier redrive, which may have sent its records or not."""
    begun = store.begun()
    if begun is None:
        return ()
    missing = sorted(set(begun.before) - set(sources))
    if missing:
        raise SetupError(
            f"an unfinished redrive sent records to {missing[0]}, which this pipeline does not read",
            hint="redrive once more with the pipeline that it was started with",
        )
    part = _with_records(store, frozenset(begun.letters))
    return tuple(_send(store, sources, begun, part))


def _letters_at(store: LetterStore, wanted: frozenset[str]) -> pl.DataFrame:
    """Read these letters and all others of the same records."""
    every = pl.concat([pl.DataFrame(schema=KEPT), *pages_of(store, raw=False)])
    places = every.filter(pl.col("id").is_in(wanted)).select(_POSITION).unique()
    return _with_records(store, frozenset(every.join(places, on=_POSITION, how="semi", nulls_equal=True)["id"]))


def _with_records(store: LetterStore, ids: frozenset[str]) -> pl.DataFrame:
    """Read these letters with their records, in order."""
    pages = (page.filter(pl.col("id").is_in(ids)) for page in pages_of(store))
    return in_order(pl.concat([pl.DataFrame(schema=KEPT), *pages]))


def _send(store: LetterStore, sources: Mapping[str, Any], one: Redrive, letters: pl.DataFrame) -> list[str]:
    sent: list[str] = []
    for name, part in _by_source(letters):
        source: RedriveTarget = sources[name]
        sent += source.redrive_records(part, one, store.marks(one, part["id"].to_list()))
    crash_point("R3")
    store.finish(one, sent)
    return sent


def _by_source(letters: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    return [(str(name), part) for (name,), part in letters.group_by("source", maintain_order=True)]


def _select(
    letters: pl.DataFrame, sources: Mapping[str, Any], wanted: frozenset[str]
) -> tuple[pl.DataFrame, dict[str, str]]:
    """Select the letters whose records can be redriven, with all others of the same records; explain the rest."""
    left: dict[str, str] = {}
    requested = letters.filter(pl.col("id").is_in(wanted))
    for id_ in requested.filter(pl.col(STATE) != NEW)["id"]:
        left[id_] = "it was redriven before"
    # A record is redriven as a whole, so it must not be sent again for another of its letters.
    gone = letters.filter(pl.col(STATE) == REDRIVEN).select(_POSITION).unique()
    places = requested.filter(pl.col(STATE) == NEW).select(_POSITION).unique()
    fresh = letters.filter(pl.col(STATE) == NEW).join(places, on=_POSITION, how="semi", nulls_equal=True)
    for id_ in fresh.join(gone, on=_POSITION, how="semi")["id"]:
        left[id_] = "its record was redriven with another letter"
    fresh = fresh.filter(~pl.col("id").is_in(left.keys()))
    for name, part in _by_source(fresh):
        left |= _not_redrivable(name, part, sources)
    return fresh.filter(~pl.col("id").is_in(left.keys())), {id_: why for id_, why in left.items() if id_ in wanted}


def _not_redrivable(name: str, letters: pl.DataFrame, sources: Mapping[str, Any]) -> dict[str, str]:
    source = sources.get(name)
    if letters["source"][0] is None:
        reasons = {SINK_REFUSED: "a row that a sink refused"}
        pairs = letters.select("id", "reason").iter_rows()
        return {id_: f"it is {reasons.get(reason, 'a pane')}, not a record of a source" for id_, reason in pairs}
    if source is None:
        why = f"the pipeline does not read {name}"
    elif not isinstance(source, RedriveTarget):
        why = f"{name} does not support redrive"
    else:
        return source.not_redrivable(letters)
    return dict.fromkeys(letters["id"], why)
