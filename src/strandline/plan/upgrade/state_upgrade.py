"""A new definition against the state that an older one made: what becomes of each keyed step, source and sink.

    same          nothing to do
    compatible    the state goes on as it is, or with what is said here done to it
    migratable    only its author knows what the old state means to the new definition: a function must say so
    incompatible  there is no way; the new definition starts from its sources

Restoring does exactly what this says, and nothing that it does not say.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from strandline.plan.upgrade.compare import words
from strandline.plan.upgrade.definitions import Definition, Plain, Way, name_of, place_of, read_definition, ways_to


class Verdict(StrEnum):
    """What becomes of a part; the later, the worse."""

    SAME = "same"
    COMPATIBLE = "compatible"
    MIGRATABLE = "migratable"
    INCOMPATIBLE = "incompatible"


_ORDER: Final = tuple(Verdict)

Finding = tuple[Verdict, str]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the new definition, what becomes of it, and why, in words."""

    what: str
    verdict: Verdict = Verdict.SAME
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StepUpgrade:
    """A keyed step of the new definition: the old one whose state it takes over, and what is done to that."""

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
    """For each source of the new definition, the number that it had; None if it is new."""
    new_sinks: tuple[int, ...] = ()
    """The outputs of the new definition that the old one did not have, by number."""
    others: tuple[Part, ...] = field(default=())
    """Sources, sinks, and steps that are gone."""

    @property
    def parts(self) -> tuple[Part, ...]:
        return (*(each.part for each in self.steps), *self.others)

    @property
    def verdict(self) -> Verdict:
        """That of the part that fares worst."""
        return max((part.verdict for part in self.parts), key=_ORDER.index, default=Verdict.SAME)

    def of(self, verdict: Verdict) -> tuple[Part, ...]:
        return tuple(part for part in self.parts if part.verdict is verdict)


_CHANGED: Final[Mapping[str, Finding]] = {
    "window": (Verdict.MIGRATABLE, "open windows have other bounds than new elements would get"),
    "accumulation": (Verdict.MIGRATABLE, "open windows have kept more, or less, than the new way needs"),
    "evictor": (Verdict.MIGRATABLE, "open windows have kept more, or less, than the new way needs"),
    "pane_timestamp": (Verdict.MIGRATABLE, "times that open windows hold back were chosen the old way"),
    "time": (Verdict.MIGRATABLE, "windows were found by another clock"),
    "trigger": (Verdict.COMPATIBLE, "in windows that are open it begins anew, as if nothing had come to them yet"),
    "lateness": (
        Verdict.COMPATIBLE,
        "windows that are open live by the new length; those that are gone do not come back",
    ),
    "ttl": (Verdict.COMPATIBLE, "keys live by the new length"),
    "on_time_pane": (Verdict.COMPATIBLE, "the state fits"),
    "final_pane": (Verdict.COMPATIBLE, "the state fits"),
}


_CHANGED_DEDUPLICATE: Final[Mapping[str, Finding]] = {
    "keep": (Verdict.INCOMPATIBLE, "what is kept of a key is another element"),
    "within": (Verdict.COMPATIBLE, "elements are compared over the new span; keys that have expired are not known"),
    "lateness": (Verdict.COMPATIBLE, "the state fits; keys that have expired are not known"),
    "time": (Verdict.MIGRATABLE, "elements were compared by another clock"),
}


def compare(was: Any, now: Any) -> Upgrade:
    """Two definitions, as `to_plain` gives them: the one that made the state, and the one that is to go on with it."""
    old, new = read_definition(was), read_definition(now)
    pairs = _matched(old.steps, new.steps)
    steps = tuple(_step(number, step, pairs.get(number), old) for number, step in enumerate(new.steps))
    places = [place_of(source) for source in old.sources]
    sources = tuple(places.index(place_of(source)) if place_of(source) in places else None for source in new.sources)
    fresh = tuple(number for number, sink in enumerate(new.sinks) if sink not in old.sinks)
    gone = [step for number, step in enumerate(old.steps) if number not in pairs.values()]
    others = (*_sources(old, new, sources), *_sinks(old, new, fresh), *(_forgotten(step) for step in gone))
    return Upgrade(steps, sources, fresh, others)


def step_words(step: Plain) -> str:
    """How a keyed step is spoken of: what it computes, by what."""
    operator = step["operator"]
    what = ", ".join(name for name, _ in operator["aggregates"]) if "aggregates" in operator else _verb(operator)
    return f"{what} by {', '.join(step['keys'])}"


def _verb(operator: Plain) -> str:
    return str(operator["is"]).lower()


def _matched(old: tuple[Plain, ...], new: tuple[Plain, ...]) -> dict[int, int]:
    """Which old step each new one takes over: the most alike first, each once."""
    pairs: dict[int, int] = {}
    for alike in (_equal, _same_work, _same_place, _same_keys, lambda _one, _other: True):
        free = [number for number in range(len(old)) if number not in pairs.values()]
        for number, step in enumerate(new):
            if number in pairs:
                continue
            found = next((each for each in free if alike(old[each], step)), None)
            if found is not None:
                pairs[number] = found
                free.remove(found)
    return pairs


def _equal(one: Plain, other: Plain) -> bool:
    return one == other


def _same_work(one: Plain, other: Plain) -> bool:
    return bool(one["keys"] == other["keys"] and one["operator"] == other["operator"])


def _same_place(one: Plain, other: Plain) -> bool:
    here, there = one["operator"], other["operator"]
    same = here["is"] == there["is"] and here.get("window") == there.get("window")
    return bool(one["keys"] == other["keys"] and same)


def _same_keys(one: Plain, other: Plain) -> bool:
    return bool(one["keys"] == other["keys"])


def _step(number: int, now: Plain, was: int | None, old: Definition) -> StepUpgrade:
    what = f"step {number}, {step_words(now)}"
    if was is None:
        said = "it is new, and begins with nothing at the positions of the savepoint"
        return StepUpgrade(Part(what, Verdict.COMPATIBLE, (said,)), number, None)
    before = old.steps[was]
    here, there = before["operator"], now["operator"]
    aggregates = _Aggregates.between(here, there)
    found = [*_keys(before, now), *_operators(here, there), *_inputs(before, now)]
    part = Part(what, max((verdict for verdict, _ in found), key=_ORDER.index, default=Verdict.SAME),
                tuple(dict.fromkeys(said for _, said in found)))  # fmt: skip
    new_trigger = here.get("trigger") != there.get("trigger")
    return StepUpgrade(part, number, was, aggregates.added, (*aggregates.removed,), new_trigger)


def _operators(was: Plain, now: Plain) -> Iterator[Finding]:
    """Compare two definitions of an operator."""
    if was["is"] != now["is"]:
        yield Verdict.INCOMPATIBLE, f"it was a {_verb(was)} and is a {_verb(now)}: neither can use the other's state"
        return
    match now["is"]:
        case "WindowedStep":
            aggregates = _Aggregates.between(was, now)
            yield from (*_fields(was, now, _CHANGED), *aggregates.findings(now), *_layout(was, now))
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
        kept_whole = now["evictor"] is not None
        for name in self.added:
            said = (
                f"{name} is new: in windows that are open it begins with nothing, and tells of what comes from now on"
            )
            if kept_whole:
                yield Verdict.MIGRATABLE, f"{name} is new, and the elements that were kept may lack what it reads"
            else:
                yield Verdict.COMPATIBLE, said
        for name in self.removed:
            yield Verdict.COMPATIBLE, f"{name} is gone: what was kept for it is forgotten"
        for name, old, new in self.changed:
            yield Verdict.MIGRATABLE, f"{name} was {old} and is {new}: open windows hold what the old one needed"


def _keys(was: Plain, now: Plain) -> Iterator[Finding]:
    if was["keys"] != now["keys"]:
        yield (
            Verdict.MIGRATABLE,
            f"keys were {', '.join(was['keys'])} and are {', '.join(now['keys'])}: the state is by other keys",
        )
    if was.get("rest") != now.get("rest"):
        yield Verdict.COMPATIBLE, "late elements go elsewhere from now on"


def _fields(was: Plain, now: Plain, changed: Mapping[str, Finding]) -> Iterator[Finding]:
    for name, (verdict, effect) in changed.items():
        if was.get(name) != now.get(name):
            told = f"{name.replace('_', ' ')} was {words(was.get(name))} and is {words(now.get(name))}"
            yield verdict, f"{told}: {effect}"


def _layout(was: Plain, now: Plain) -> Iterator[Finding]:
    """Overlapping windows share what they hold as long as none speaks before its end."""
    overlap = now["window"]["is"] in ("Sliding", "Cumulating") and was["window"] == now["window"]
    if overlap and _waits(was["trigger"]) != _waits(now["trigger"]):
        yield Verdict.MIGRATABLE, "overlapping windows were kept together until their end, or are to be, but not both"


def _waits(trigger: Plain) -> bool:
    inner = trigger["of"] if trigger["is"] == "Repeatedly" else trigger
    return inner["is"] == "Never" or (inner["is"] == "AfterWatermark" and inner.get("early") is None)


def _inputs(was: Plain, now: Plain) -> Iterator[Finding]:
    """What lies between a step and where its rows come from."""
    before, after = ways_to(was), ways_to(now)
    if len(before) != len(after) or any(not _same_origin(*pair) for pair in zip(before, after, strict=False)):
        told = f"it takes its elements from {_origins(after)}, and took them from {_origins(before)}"
        yield Verdict.INCOMPATIBLE, f"{told}: positions of one source mean nothing to another"
        return
    for one, other in zip(before, after, strict=True):
        if one.operations != other.operations:
            yield (
                Verdict.COMPATIBLE,
                "what is done to elements before it has changed: those that came before went the old way",
            )
        if one.time is not None and other.time is not None:
            if one.time["column"] != other.time["column"]:
                told = f"event time was {one.time['column']} and is {other.time['column']}"
                yield Verdict.MIGRATABLE, f"{told}: windows were found by another column's times"
            if one.time["watermark"] != other.time["watermark"]:
                yield Verdict.COMPATIBLE, "the watermark goes on by the new rule, and never back"


def _same_origin(one: Way, other: Way) -> bool:
    if one.origin["is"] != other.origin["is"]:
        return False
    if one.origin["is"] == "Read":
        return place_of(one.origin["source"]) == place_of(other.origin["source"])
    return _same_keys(one.origin, other.origin)


def _origins(found: Iterable[Way]) -> str:
    names = [name_of(way.origin["source"]) if way.origin["is"] == "Read" else step_words(way.origin) for way in found]
    return " and ".join(dict.fromkeys(names))


def _sources(old: Definition, new: Definition, matched: tuple[int | None, ...]) -> Iterator[Part]:
    for number, source in enumerate(new.sources):
        before = matched[number]
        what = f"source {name_of(source)}"
        if before is None:
            yield Part(what, Verdict.COMPATIBLE, ("it is new, and read from where it says",))
        elif source != old.sources[before]:
            yield Part(what, Verdict.COMPATIBLE, ("its records are read another way from its position on",))
        else:
            yield Part(what, words=("goes on from its position",))
    for number, source in enumerate(old.sources):
        if number not in matched:
            yield Part(f"source {name_of(source)}", Verdict.COMPATIBLE, ("is no longer read",))


def _sinks(old: Definition, new: Definition, fresh: tuple[int, ...]) -> Iterator[Part]:
    for number, sink in enumerate(new.sinks):
        if number in fresh:
            said = "it is new, and starts without the rows that went elsewhere before"
            yield Part(f"sink {name_of(sink)}", Verdict.COMPATIBLE, (said,))
        else:
            yield Part(f"sink {name_of(sink)}", words=("goes on where its ledger stands",))
    for sink in old.sinks:
        if sink not in new.sinks:
            yield Part(f"sink {name_of(sink)}", Verdict.COMPATIBLE, ("gets nothing any more",))


def _forgotten(step: Plain) -> Part:
    return Part(f"old step {step_words(step)}", Verdict.COMPATIBLE, ("is gone, and its state with it",))
