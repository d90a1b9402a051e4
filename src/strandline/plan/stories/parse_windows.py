"""Parse the windows, evictors and watermarks of a story."""

from collections.abc import Mapping
from typing import Any, Final

from strandline.model.elements import ZERO, Duration
from strandline.model.evictors import Evictor, KeepDelta, KeepLast, KeepWithin, Moment
from strandline.model.expressions import expression
from strandline.model.watermarks import (
    Bounded,
    FromSource,
    FutureBound,
    Generator,
    Inputs,
    OnReturn,
    Percentile,
    Watermark,
)
from strandline.model.windows import Count, Cumulating, Custom, Global, Session, Sliding, Tumbling, WindowKind, session
from strandline.plan.stories.located_values import Written

_WINDOWS: Final = {
    "tumbling": ("offset",),
    "sliding": ("every", "offset"),
    "cumulating": ("step", "offset"),
    "session": ("touching",),
    "count": ("every",),
    "custom": (),
}


def window(given: Written) -> WindowKind:
    """Parse a window: `global`, or a mapping with its kind and options."""
    if given.value == "global":
        return Global()
    word, of, more = given.variant(_WINDOWS, "a window")
    with given.locating():
        match word:
            case "tumbling":
                return Tumbling(of.length(), _length(more, "offset"))
            case "sliding":
                return Sliding(of.length(), given.required(more, "every").length(), _length(more, "offset"))
            case "cumulating":
                return Cumulating(of.length(), given.required(more, "step").length(), _length(more, "offset"))
            case "session":
                return _session(of, more)
            case "count":
                return Count(of.integer(), more["every"].integer() if "every" in more else None)
            case _:
                bounds = of.members_among(("start", "end"), "a custom window")
                return Custom(of.required(bounds, "start").text(), of.required(bounds, "end").text())


def _session(of: Written, more: Mapping[str, Written]) -> Session:
    touching = more["touching"].text() if "touching" in more else "merge"
    if not isinstance(of.value, dict):
        return session(of.length(), touching=touching)
    named = of.members_among(("column",), "a session's gap")
    return session(column=of.required(named, "column").text(), touching=touching)


def _length(more: Mapping[str, Written], name: str, otherwise: Duration = ZERO) -> Duration:
    return more[name].length() if name in more else otherwise


def evictor(given: Written) -> Evictor:
    """Parse an evictor, such as `{keep_last: 4, when: before}`."""
    kinds = {"keep_last": ("when",), "keep_within": ("when",), "keep_delta": ("from", "when")}
    word, of, more = given.variant(kinds, "an evictor")
    moment = Moment(more["when"].one_of([*Moment])) if "when" in more else Moment.BEFORE
    with given.locating():
        match word:
            case "keep_last":
                return KeepLast(of.integer(), moment)
            case "keep_within":
                return KeepWithin(of.length(), moment)
            case _:
                distance = expression(of.text("a distance, such as 'last.value - value'"))
                return KeepDelta(distance, given.required(more, "from").number(), moment)


_COMMON: Final = ("idle_after", "future", "future_dead_letter", "on_return")
_WATERMARKS: Final = {
    "bounded": ("partitions", *_COMMON),
    "percentile": ("horizon", "least", "most", "first", "enough", "partitions", *_COMMON),
    "from_source": _COMMON,
    "inputs": ("on_return",),
}


def watermark(given: Written) -> tuple[Watermark | Inputs, tuple[str, ...]]:
    """Parse the rule of the watermark and the partitions known from the start."""
    word, of, more = given.variant(_WATERMARKS, "a watermark")
    on_return = OnReturn(more["on_return"].one_of([*OnReturn])) if "on_return" in more else None
    with given.locating():
        if word == "inputs":
            return Inputs(_names(of), on_return or OnReturn.CATCH_UP), ()
        rule = Watermark(
            _generator(word, of, more),
            idle=_length(more, "idle_after") if "idle_after" in more else None,
            future=_future(given, more),
            on_return=on_return or OnReturn.WAIT,
        )
    known = of.members_among(("partitions",), "from_source") if word == "from_source" and of.value is not None else more
    return rule, _names(known["partitions"]) if "partitions" in known else ()


def _generator(word: str, of: Written, more: Mapping[str, Written]) -> Generator:
    match word:
        case "bounded":
            return Bounded(of.length())
        case "percentile":
            options: dict[str, Any] = {
                name: more[name].length() for name in ("horizon", "least", "most", "first") if name in more
            }
            if "enough" in more:
                options["enough"] = more["enough"].integer()
            return Percentile(of.number("a share, such as 0.99"), **options)
        case _:
            return FromSource()


def _future(given: Written, more: Mapping[str, Written]) -> FutureBound | None:
    if "future" in more:
        dead_letter = more["future_dead_letter"].boolean() if "future_dead_letter" in more else False
        return FutureBound(more["future"].length(), dead_letter)
    if "future_dead_letter" in more:
        raise given.error("'future' too, because 'future_dead_letter' needs a bound")
    return None


def _names(given: Written) -> tuple[str, ...]:
    names = tuple(each.text("a name") for each in given.items("a list of names"))
    if len(set(names)) < len(names):
        raise given.error("different names")
    return names
