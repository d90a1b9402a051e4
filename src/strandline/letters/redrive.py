"""Dead letters back to where they came from, each record once, also when this is killed and done again.

A redrive is kept in the store before anything is sent. Then the sources take the records back, all of a source's or
none. Then the letters are marked. One that was killed in between is found by the next, which does it again: a source
looks whether the records of a redrive have arrived before it sends any. So it does not matter whether the first was
killed or is only slow.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from strandline.errors import SetupError
from strandline.kernel.dead_letters import SINK_REFUSED
from strandline.letters.store import NEW, REDRIVEN, STATE, LetterStore, Redrive, TakesBack
from strandline.ports.crash_points import crash_point

AT_ONCE: Final = 1_000
"""The most letters of one redrive; more are sent in several."""

_POSITION: Final = ("source", "source_partition", "source_offset")


@dataclass(frozen=True, slots=True)
class Report:
    """What became of the letters that were asked for."""

    sent: tuple[str, ...] = ()
    left: Mapping[str, str] = field(default_factory=dict)
    """By id, why a letter was not sent."""
    completed: tuple[str, ...] = ()
    """Letters of a redrive that was killed before, and is done now."""


def redrive(store: LetterStore, sources: Mapping[str, Any], wanted: Iterable[str]) -> Report:
    """Sends the records of these letters back to their sources, by name, and marks the letters."""
    completed = _complete(store, sources)
    letters = store.read()
    chosen, left = _chosen(letters, sources, frozenset(wanted) - frozenset(completed))
    sent: list[str] = []
    for start in range(0, chosen.height, AT_ONCE):
        part = chosen[start : start + AT_ONCE]
        ids = tuple(part["id"])
        before = {name: sources[name].standing(each) for name, each in _by_source(part)}
        one = Redrive(hashlib.sha256(",".join(ids).encode()).hexdigest()[:16], ids, before)
        store.begin(one)
        crash_point("R1")
        sent += _send(store, sources, one, part)
    return Report(tuple(sent), left, completed)


def foresee(store: LetterStore, sources: Mapping[str, Any], wanted: Iterable[str]) -> Report:
    """What a redrive would send, as far as it can be told without one, and what would stay."""
    begun = store.begun()
    completed = () if begun is None else begun.letters
    chosen, left = _chosen(store.read(), sources, frozenset(wanted) - frozenset(completed))
    return Report(tuple(chosen["id"]), left, completed)


def _complete(store: LetterStore, sources: Mapping[str, Any]) -> tuple[str, ...]:
    """What a redrive before this one had begun, and may have sent or not."""
    begun = store.begun()
    if begun is None:
        return ()
    missing = sorted(set(begun.before) - set(sources))
    if missing:
        raise SetupError(
            f"a redrive was killed that sent records to {missing[0]}, which this pipeline does not read",
            hint="run it once more with the pipeline it was begun with",
        )
    part = store.read().filter(pl.col("id").is_in(begun.letters))
    return tuple(_send(store, sources, begun, part))


def _send(store: LetterStore, sources: Mapping[str, Any], one: Redrive, letters: pl.DataFrame) -> list[str]:
    sent: list[str] = []
    for name, mine in _by_source(letters):
        source: TakesBack = sources[name]
        sent += source.take_back(mine, one, store.marks(one, mine["id"].to_list()))
    crash_point("R3")
    store.finish(one, sent)
    return sent


def _by_source(letters: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    return [(str(name), mine) for (name,), mine in letters.group_by("source", maintain_order=True)]


def _chosen(
    letters: pl.DataFrame, sources: Mapping[str, Any], wanted: frozenset[str]
) -> tuple[pl.DataFrame, dict[str, str]]:
    """The letters whose records can go back, with all others of the same records; and why the rest cannot."""
    left: dict[str, str] = {}
    asked = letters.filter(pl.col("id").is_in(wanted))
    for id_ in asked.filter(pl.col(STATE) != NEW)["id"]:
        left[id_] = "it was sent back before"
    # A record goes back as a whole, so it must not go back for another of its letters.
    gone = letters.filter(pl.col(STATE) == REDRIVEN).select(_POSITION).unique()
    places = asked.filter(pl.col(STATE) == NEW).select(_POSITION).unique()
    fresh = letters.filter(pl.col(STATE) == NEW).join(places, on=_POSITION, how="semi", nulls_equal=True)
    for id_ in fresh.join(gone, on=_POSITION, how="semi")["id"]:
        left[id_] = "its record was sent back with another letter"
    fresh = fresh.filter(~pl.col("id").is_in(left.keys()))
    for name, mine in _by_source(fresh):
        left |= _why_not(name, mine, sources)
    return fresh.filter(~pl.col("id").is_in(left.keys())), {id_: why for id_, why in left.items() if id_ in wanted}


def _why_not(name: str, letters: pl.DataFrame, sources: Mapping[str, Any]) -> dict[str, str]:
    source = sources.get(name)
    if letters["source"][0] is None:
        words = {SINK_REFUSED: "a row that a sink refused"}
        pairs = letters.select("id", "reason").iter_rows()
        return {id_: f"it is {words.get(reason, 'a pane')}, not a record of a source" for id_, reason in pairs}
    if source is None:
        why = f"the pipeline does not read {name}"
    elif not isinstance(source, TakesBack):
        why = f"{name} takes no records back"
    else:
        return source.why_not(letters)
    return dict.fromkeys(letters["id"], why)
