"""Compare a new definition with the one that wrote the state, and decide what happens to each step, source and sink.

    same          nothing changes
    compatible    the state is used as it is, or with the changes listed here
    migratable    the state needs a migration function from the author of the pipeline
    incompatible  the state cannot be used; the new definition starts from its sources

A restore applies exactly these decisions.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from strandline.plan.upgrade.compare import words
from strandline.plan.upgrade.definitions import (
    Definition,
    Plain,
    Way,
    name_of,
    paths_to_step,
    read_definition,
    source_identity,
)


class Verdict(StrEnum):
    """What happens to a part, from best to worst."""

    SAME = "same"
    COMPATIBLE = "compatible"
    MIGRATABLE = "migratable"
    INCOMPATIBLE = "incompatible"


_ORDER: Final = tuple(Verdict)

Finding = tuple[Verdict, str]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a definition, its verdict, and the reasons."""

    what: str
    verdict: Verdict = Verdict.SAME
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StepUpgrade:
    """A keyed step of the new definition, the old step whose state it takes over, and the changes to that state."""

    part: Part
    number: int
    was: int | None
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    new_trigger: bool = False


@dataclass(frozen=True, slots=True)
class Upgrade:
    """The whole comparison."""

    steps: tuple[StepUpgrade, ...] = ()
    sources: tuple[int | None, ...] = ()
    """For each source of the new definition, its number in the old one; None if it is new."""
    new_sinks: tuple[int, ...] = ()
    """Outputs of the new definition that the old one did not have, by number."""
    others: tuple[Part, ...] = field(default=())
    """Sources, sinks, and removed steps."""

    @property
    def parts(self) -> tuple[Part, ...]:
        return (*(each.part for each in self.steps), *self.others)

    @property
    def verdict(self) -> Verdict:
        """Return the worst verdict of all parts."""
        return max((part.verdict for part in self.parts), key=_ORDER.index, default=Verdict.SAME)

    def of(self, verdict: Verdict) -> tuple[Part, ...]:
        return tuple(part for part in self.parts if part.verdict is verdict)


_CHANGED: Final[Mapping[str, Finding]] = {
    "window": (Verdict.MIGRATABLE, "open windows have other bounds than the new windows"),
    "accumulation": (Verdict.MIGRATABLE, "open windows hold more, or less, than the new mode needs"),
    "evictor": (Verdict.MIGRATABLE, "open windows hold more, or less, than the new evictor needs"),
    "pane_timestamp": (Verdict.MIGRATABLE, "open windows hold the watermark at timestamps of the old setting"),
    "time": (Verdict.MIGRATABLE, "open windows were assigned in another time domain"),
    "trigger": (Verdict.COMPATIBLE, "it starts over in open windows, as if they had no elements yet"),
    "lateness": (
        Verdict.COMPATIBLE,
        "open windows use the new lateness; deleted windows do not come back",
    ),
    "ttl": (Verdict.COMPATIBLE, "keys use the new time to live"),
    "on_time_pane": (Verdict.COMPATIBLE, "the state fits"),
    "final_pane": (Verdict.COMPATIBLE, "the state fits"),
}


_CHANGED_DEDUPLICATE: Final[Mapping[str, Finding]] = {
    "keep": (Verdict.INCOMPATIBLE, "the state holds another element of each key"),
    "within": (Verdict.COMPATIBLE, "elements are compared over the new span; keys that have expired stay unknown"),
    "lateness": (Verdict.COMPATIBLE, "the state fits; keys that have expired stay unknown"),
    "time": (Verdict.MIGRATABLE, "elements were compared in another time domain"),
}


_CHANGED_WINDOW_JOIN: Final[Mapping[str, Finding]] = {
    "window": (Verdict.MIGRATABLE, "open windows have other bounds than the new windows"),
    "trigger": (Verdict.COMPATIBLE, "it starts over in open windows, as if they had no elements yet"),
    "accumulation": (Verdict.COMPATIBLE, "later firings of open windows relate to earlier ones in the new mode"),
    "lateness": (Verdict.COMPATIBLE, "open windows use the new lateness; deleted windows do not come back"),
    "renamed": (Verdict.MIGRATABLE, "stored rows have the old names"),
    "columns": (Verdict.COMPATIBLE, "stored rows have null in columns that are new"),
}


_CHANGED_JOIN: Final[Mapping[str, Finding]] = {
    "how": (Verdict.INCOMPATIBLE, "the state does not say which stored rows had a partner"),
    "lower": (
        Verdict.COMPATIBLE,
        "stored rows are joined over the new interval; rows that have ended do not come back",
    ),
    "upper": (
        Verdict.COMPATIBLE,
        "stored rows are joined over the new interval; rows that have ended do not come back",
    ),
    "lateness": (Verdict.COMPATIBLE, "the state fits; rows that have ended do not come back"),
    "condition": (Verdict.COMPATIBLE, "pairs are tested by the new condition from the restore on"),
    "renamed": (Verdict.MIGRATABLE, "stored rows have the old names"),
    "columns": (Verdict.COMPATIBLE, "stored rows have null in columns that are new"),
}


def compare(was: Any, now: Any) -> Upgrade:
    """Compare the definition that wrote the state with the new one, both in the form of `to_plain`."""
    old, new = read_definition(was), read_definition(now)
    pairs = _matched(old.steps, new.steps)
    steps = tuple(_step(number, step, pairs.get(number), old) for number, step in enumerate(new.steps))
    identities = [source_identity(source) for source in old.sources]
    sources = tuple(
        identities.index(source_identity(source)) if source_identity(source) in identities else None
        for source in new.sources
    )
    fresh = tuple(number for number, sink in enumerate(new.sinks) if sink not in old.sinks)
    removed = [step for number, step in enumerate(old.steps) if number not in pairs.values()]
    others = (*_sources(old, new, sources), *_sinks(old, new, fresh), *(_removed(step) for step in removed))
    return Upgrade(steps, sources, fresh, others)


def step_words(step: Plain) -> str:
    """Return the name of a keyed step: its aggregates or operator, and its keys."""
    operator = step["operator"]
    what = ", ".join(name for name, _ in operator["aggregates"]) if "aggregates" in operator else _verb(operator)
    return f"{what} by {', '.join(step['keys'])}"


def _verb(operator: Plain) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", str(operator["is"])).lower()


def _matched(old: tuple[Plain, ...], new: tuple[Plain, ...]) -> dict[int, int]:
    """Match each new step with at most one old step, the most similar first."""
    pairs: dict[int, int] = {}
    for is_match in (_equal, _same_work, _same_windows, _same_keys, lambda _one, _other: True):
        free = [number for number in range(len(old)) if number not in pairs.values()]
        for number, step in enumerate(new):
            if number in pairs:
                continue
            found = next((each for each in free if is_match(old[each], step)), None)
            if found is not None:
                pairs[number] = found
                free.remove(found)
    return pairs


def _equal(one: Plain, other: Plain) -> bool:
    return one == other


def _same_work(one: Plain, other: Plain) -> bool:
    return bool(one["keys"] == other["keys"] and one["operator"] == other["operator"])


def _same_windows(one: Plain, other: Plain) -> bool:
    here, there = one["operator"], other["operator"]
    same = here["is"] == there["is"] and here.get("window") == there.get("window")
    return bool(one["keys"] == other["keys"] and same)


def _same_keys(one: Plain, other: Plain) -> bool:
    return bool(one["keys"] == other["keys"])


def _step(number: int, now: Plain, was: int | None, old: Definition) -> StepUpgrade:
    what = f"step {number}, {step_words(now)}"
    if was is None:
        reason = "it is new, and starts without state at the positions of the savepoint"
        return StepUpgrade(Part(what, Verdict.COMPATIBLE, (reason,)), number, None)
    before = old.steps[was]
    here, there = before["operator"], now["operator"]
    aggregates = _Aggregates.between(here, there)
    found = [*_keys(before, now), *_operators(here, there), *_inputs(before, now)]
    part = Part(what, max((verdict for verdict, _ in found), key=_ORDER.index, default=Verdict.SAME),
                tuple(dict.fromkeys(reason for _, reason in found)))  # fmt: skip
    new_trigger = here.get("trigger") != there.get("trigger")
    return StepUpgrade(part, number, was, aggregates.added, (*aggregates.removed,), new_trigger)


def _operators(was: Plain, now: Plain) -> Iterator[Finding]:
    """Compare two definitions of an operator."""
    if was["is"] != now["is"]:
        yield Verdict.INCOMPATIBLE, f"it was {_verb(was)} and is {_verb(now)}, which cannot use each other's state"
        return
    match now["is"]:
        case "WindowedStep":
            aggregates = _Aggregates.between(was, now)
            yield from (*_fields(was, now, _CHANGED), *aggregates.findings(now), *_layout(was, now))
        case "IntervalJoin":
            yield from _fields(was, now, _CHANGED_JOIN)
        case "WindowJoin":
            yield from (*_fields(was, now, _CHANGED_WINDOW_JOIN), *_rows_of_firings(was, now), *_layout(was, now))
        case _:
            yield from _fields(was, now, _CHANGED_DEDUPLICATE)


@dataclass(frozen=True, slots=True)
class _Aggregates:
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[tuple[str, str, str], ...]

    @classmethod
    def between(cls, was: Plain, now: Plain) -> "_Aggregates":
        old, new = dict(was.get("aggregates", ())), dict(now.get("aggregates", ()))
        changed = tuple((n, words(old[n]), words(new[n])) for n in new if n in old and old[n] != new[n])
        return cls(tuple(n for n in new if n not in old), tuple(n for n in old if n not in new), changed)

    def findings(self, now: Plain) -> Iterator[Finding]:
        keeps_elements = now["evictor"] is not None
        for name in self.added:
            if keeps_elements:
                yield Verdict.MIGRATABLE, f"{name} is new, and the kept elements may lack the columns that it reads"
            else:
                yield Verdict.COMPATIBLE, f"{name} is new: in open windows it covers elements from the restore on"
        for name in self.removed:
            yield Verdict.COMPATIBLE, f"{name} is removed, with its state"
        for name, old, new in self.changed:
            yield Verdict.MIGRATABLE, f"{name} was {old} and is {new}: open windows hold the state of the old aggregate"


def _keys(was: Plain, now: Plain) -> Iterator[Finding]:
    if was["keys"] != now["keys"]:
        yield (
            Verdict.MIGRATABLE,
            f"keys were {', '.join(was['keys'])} and are {', '.join(now['keys'])}: the state has other keys",
        )
    if was.get("rest") != now.get("rest"):
        yield Verdict.COMPATIBLE, "late elements go to another sink from the restore on"


def _fields(was: Plain, now: Plain, changed: Mapping[str, Finding]) -> Iterator[Finding]:
    for name, (verdict, effect) in changed.items():
        if was.get(name) != now.get(name):
            change = f"{name.replace('_', ' ')} was {words(was.get(name))} and is {words(now.get(name))}"
            yield verdict, f"{change}: {effect}"


def _layout(was: Plain, now: Plain) -> Iterator[Finding]:
    """Compare state layouts: overlapping windows share slices unless a trigger fires before their end."""
    overlap = now["window"]["is"] in ("Sliding", "Cumulating") and was["window"] == now["window"]
    if overlap and _waits(was["trigger"]) != _waits(now["trigger"]):
        yield Verdict.MIGRATABLE, "overlapping windows share slices in only one of the two definitions"


def _waits(trigger: Plain) -> bool:
    inner = trigger["of"] if trigger["is"] == "Repeatedly" else trigger
    return inner["is"] == "Never" or (inner["is"] == "AfterWatermark" and inner.get("early") is None)


def _rows_of_firings(was: Plain, now: Plain) -> Iterator[Finding]:
    """Compare which rows a firing of a window join has: earlier firings of open windows had those of the old one."""
    fired = not _waits(was["trigger"]) or was["lateness"]["allowed"]["ms"] > 0
    found = (
        (Verdict.MIGRATABLE, "open windows may have emitted rows of the old kind")
        if fired
        else (Verdict.COMPATIBLE, "open windows have emitted nothing yet")
    )
    yield from _fields(was, now, {"how": found, "condition": found})


def _inputs(was: Plain, now: Plain) -> Iterator[Finding]:
    """Compare the paths from sources and other steps to a step."""
    before, after = paths_to_step(was), paths_to_step(now)
    if len(before) != len(after) or any(not _same_origin(*pair) for pair in zip(before, after, strict=False)):
        change = f"it takes its elements from {_origins(after)}, and took them from {_origins(before)}"
        yield Verdict.INCOMPATIBLE, f"{change}: positions in one source have no meaning in another"
        return
    for one, other in zip(before, after, strict=True):
        if one.operations != other.operations:
            yield (
                Verdict.COMPATIBLE,
                "operations before it have changed: earlier elements were processed by the old ones",
            )
        if one.time is not None and other.time is not None:
            if one.time["column"] != other.time["column"]:
                change = f"event time was {one.time['column']} and is {other.time['column']}"
                yield Verdict.MIGRATABLE, f"{change}: open windows were assigned by another column"
            if one.time["watermark"] != other.time["watermark"]:
                yield Verdict.COMPATIBLE, "the watermark continues by the new rule and never goes back"


def _same_origin(one: Way, other: Way) -> bool:
    if one.origin["is"] != other.origin["is"]:
        return False
    if one.origin["is"] == "Read":
        return source_identity(one.origin["source"]) == source_identity(other.origin["source"])
    return _same_keys(one.origin, other.origin)


def _origins(found: Iterable[Way]) -> str:
    names = [
        name_of(path.origin["source"]) if path.origin["is"] == "Read" else step_words(path.origin) for path in found
    ]
    return " and ".join(dict.fromkeys(names))


def _sources(old: Definition, new: Definition, matched: tuple[int | None, ...]) -> Iterator[Part]:
    for number, source in enumerate(new.sources):
        before = matched[number]
        what = f"source {name_of(source)}"
        if before is None:
            yield Part(what, Verdict.COMPATIBLE, ("it is new, and is read from its own start position",))
        elif source != old.sources[before]:
            yield Part(what, Verdict.COMPATIBLE, ("its records are decoded differently from its position on",))
        else:
            yield Part(what, words=("continues from its position",))
    for number, source in enumerate(old.sources):
        if number not in matched:
            yield Part(f"source {name_of(source)}", Verdict.COMPATIBLE, ("it is no longer read",))


def _sinks(old: Definition, new: Definition, fresh: tuple[int, ...]) -> Iterator[Part]:
    for number, sink in enumerate(new.sinks):
        if number in fresh:
            reason = "it is new, and starts without the rows of other sinks"
            yield Part(f"sink {name_of(sink)}", Verdict.COMPATIBLE, (reason,))
        else:
            yield Part(f"sink {name_of(sink)}", words=("continues from its ledger",))
    for sink in old.sinks:
        if sink not in new.sinks:
            yield Part(f"sink {name_of(sink)}", Verdict.COMPATIBLE, ("it receives no more rows",))


def _removed(step: Plain) -> Part:
    return Part(f"old step {step_words(step)}", Verdict.COMPATIBLE, ("it is removed, with its state",))
