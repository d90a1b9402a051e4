"""Parse the triggers of a story."""

from collections.abc import Mapping
from typing import Final

from strandline.model.elements import ZERO
from strandline.model.triggers import (
    AfterCount,
    AfterEventTime,
    AfterProcessingTime,
    AfterWatermark,
    AllOf,
    FirstOf,
    InSequence,
    Never,
    OrFinally,
    Repeatedly,
    Trigger,
    after_watermark,
    when,
)
from strandline.plan.stories.located_values import Written

_WITHOUT_OPTIONS: Final[Mapping[str, Trigger]] = {"after_watermark": AfterWatermark(), "never": Never()}
_WORDS: Final = (
    "after_watermark", "after_count", "after_processing_time", "after_event_time", "when", "never", "every",
    "repeatedly", "first_of", "all_of", "in_sequence", "or_finally",
)  # fmt: skip


def trigger(given: Written) -> Trigger:
    """Parse a trigger: a word, or a mapping with one word and its options. Parts are triggers too."""
    if isinstance(given.value, str):
        return _WITHOUT_OPTIONS[given.one_of([*_WITHOUT_OPTIONS])]
    word, of, _ = given.variant(dict.fromkeys(_WORDS, ()), "a trigger")
    with given.locating():
        match word:
            case "after_count":
                return AfterCount(of.integer())
            case "when":
                return when(of.text("a condition, such as 'total > 100'"))
            case "every":
                return Repeatedly(AfterProcessingTime(of.length()))
            case "repeatedly":
                return Repeatedly(trigger(of))
            case "first_of":
                return FirstOf(_parts(of))
            case "all_of":
                return AllOf(_parts(of))
            case "in_sequence":
                return InSequence(_parts(of))
            case "or_finally":
                return _or_finally(of)
            case "never":
                return Never()
            case _:
                return _timed(word, of)


def _timed(word: str, of: Written) -> Trigger:
    match word:
        case "after_processing_time":
            return _after_processing_time(of)
        case "after_event_time":
            return _after_event_time(of)
        case _:
            parts = {} if of.value is None else of.members_among(("early", "late"), "after_watermark")
            triggers = {name: trigger(part) for name, part in parts.items()}
            return after_watermark(early=triggers.get("early"), late=triggers.get("late"))


def _after_processing_time(of: Written) -> AfterProcessingTime:
    if not isinstance(of.value, dict):
        return AfterProcessingTime(of.length())
    named = of.members_among(("delay", "aligned", "offset"), "after_processing_time")
    lengths = {name: each.length() for name, each in named.items()}
    if "aligned" not in named and ("offset" in named or "delay" not in named):
        raise of.error("'aligned' too")
    return AfterProcessingTime(lengths.get("delay", ZERO), lengths.get("aligned"), lengths.get("offset", ZERO))


def _after_event_time(of: Written) -> AfterEventTime:
    if not isinstance(of.value, dict):
        return AfterEventTime(of.length())
    named = of.members_among(("period", "offset"), "after_event_time")
    return AfterEventTime(
        of.required(named, "period").length(), named["offset"].length() if "offset" in named else ZERO
    )


def _or_finally(of: Written) -> OrFinally:
    parts = _parts(of)
    if len(parts) != 2:
        raise of.error("two triggers: one that fires, and one that ends it")
    return OrFinally(*parts)


def _parts(of: Written) -> tuple[Trigger, ...]:
    return tuple(trigger(part) for part in of.items("a list of triggers"))
