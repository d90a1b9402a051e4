"""Two definitions of one pipeline: what has changed, and what that would do to the state that the first one made."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

_KEEPS: Final = "the state fits"
_EFFECTS: Final[Mapping[str, str]] = {
    "keys": "the state is by other keys and cannot be used",
    "window": "open windows have other bounds than new elements would get",
    "trigger": "what triggers have counted so far does not fit the new one",
    "accumulation": "open windows have kept more, or less, than the new way needs",
    "aggregates": "open windows know nothing of a new value, and hold what an old one needed",
    "lateness": f"{_KEEPS}; windows that are open live by the new length",
    "evictor": "open windows have kept more, or less, than the new way needs",
    "ttl": f"{_KEEPS}; keys live by the new length",
    "pane_timestamp": "times that open windows hold back were chosen the old way",
    "on_time_pane": _KEEPS,
    "final_pane": _KEEPS,
    "time": "windows were found by another clock",
    "watermark": f"{_KEEPS}; the watermark goes on by the new rule, and never back",
    "column": "windows were found by another column's times",
    "source": "positions of one source mean nothing to another",
    "sink": f"{_KEEPS}; the new sink starts without the rows that went to the old one",
    "delivery": _KEEPS,
    "operation": f"{_KEEPS}; elements that came before went the old way",
    "rest": _KEEPS,
    "accepted": _KEEPS,
}


@dataclass(frozen=True, slots=True)
class Change:
    """Something said otherwise than before, and what it would do to the state."""

    what: str
    was: str
    now: str
    effect: str

    def __str__(self) -> str:
        return f"{self.what} was {self.was} and is {self.now}: {self.effect}"


def changes(was: Any, now: Any) -> tuple[Change, ...]:
    """What differs between two definitions, as `to_plain` gives them."""
    return tuple(dict.fromkeys(_changes(was, now, "pipeline")))


def _changes(was: Any, now: Any, what: str) -> Iterator[Change]:
    if was == now:
        return
    same_kind = isinstance(was, dict) and isinstance(now, dict) and was.get("is") == now.get("is")
    if not same_kind or (what in _EFFECTS and what not in ("source", "sink")):
        if isinstance(was, dict) and isinstance(now, dict) and what in ("of", "pipeline"):
            effect = "the steps are others, and the state belongs to the old ones"
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
    """A value as it could be written."""
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
