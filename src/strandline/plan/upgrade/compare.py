"""List the changes between two definitions of a pipeline, with their effect on existing state."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

_KEEPS: Final = "the state fits"
_EFFECTS: Final[Mapping[str, str]] = {
    "keys": "the state has other keys and cannot be used",
    "window": "open windows have other bounds than the new windows",
    "trigger": "the state of the old trigger does not fit the new one",
    "accumulation": "open windows hold more, or less, than the new mode needs",
    "aggregates": "open windows lack a new aggregate, and hold the state of an old one",
    "lateness": f"{_KEEPS}; open windows use the new lateness",
    "evictor": "open windows hold more, or less, than the new evictor needs",
    "ttl": f"{_KEEPS}; keys use the new time to live",
    "pane_timestamp": "open windows hold the watermark at timestamps of the old setting",
    "on_time_pane": _KEEPS,
    "final_pane": _KEEPS,
    "time": "open windows were assigned in another time domain",
    "watermark": f"{_KEEPS}; the watermark continues by the new rule and never goes back",
    "column": "open windows were assigned by another column",
    "source": "positions in one source have no meaning in another",
    "sink": f"{_KEEPS}; the new sink starts without the rows of the old one",
    "delivery": _KEEPS,
    "operation": f"{_KEEPS}; earlier elements were processed by the old operation",
    "rest": _KEEPS,
    "accepted": _KEEPS,
}


@dataclass(frozen=True, slots=True)
class Change:
    """A changed setting and its effect on the state."""

    what: str
    was: str
    now: str
    effect: str

    def __str__(self) -> str:
        return f"{self.what} was {self.was} and is {self.now}: {self.effect}"


def changes(was: Any, now: Any) -> tuple[Change, ...]:
    """Return the changes between two definitions in the form of `to_plain`."""
    return tuple(dict.fromkeys(_changes(was, now, "pipeline")))


def _changes(was: Any, now: Any, what: str) -> Iterator[Change]:
    if was == now:
        return
    same_kind = isinstance(was, dict) and isinstance(now, dict) and was.get("is") == now.get("is")
    if not same_kind or (what in _EFFECTS and what not in ("source", "sink")):
        if isinstance(was, dict) and isinstance(now, dict) and what in ("of", "pipeline"):
            effect = "the steps are different, and the state belongs to the old steps"
            yield Change("the pipeline", words(was), words(now), effect)
            return
        yield Change(what.replace("_", " "), words(was), words(now), _EFFECTS.get(what, "the state may not fit"))
        return
    for name in was:
        if what in ("source", "sink"):
            if was[name] != now.get(name):
                yield Change(f"{what} {name}", words(was[name]), words(now.get(name)), _EFFECTS[what])
        else:
            yield from _changes(was[name], now.get(name), name)


def words(value: Any) -> str:
    """Write a value of a definition as text."""
    match value:
        case {"is": "Duration" | "Timestamp", "ms": ms}:
            return f"{ms} ms"
        case {"is": kind, **held}:
            inside = ", ".join(
                f"{name}={words(each)}" for name, each in held.items() if name != "of" and each is not None
            )
            return f"{kind}({inside})"
        case [*parts]:
            return f"[{', '.join(map(words, parts))}]"
        case _:
            return repr(value)
