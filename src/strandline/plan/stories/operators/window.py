"""Parse a windowed aggregation of a story, and the panes that a story expects of it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from strandline.model.aggregates import Collect
from strandline.model.elements import TimeDomain
from strandline.model.operators import Operator
from strandline.model.panes import Accumulation, Emit, Lateness, LateRows, PaneTimestamp, Timing
from strandline.model.steps import WindowedStep
from strandline.plan.stories.located_values import Written
from strandline.plan.stories.operators.contract import OF, Readers
from strandline.plan.stories.parse_aggregates import aggregate
from strandline.plan.stories.parse_rows import window_bounds, word_of
from strandline.plan.stories.parse_triggers import trigger
from strandline.plan.stories.parse_windows import evictor, window

_CHOICES: Final = {
    "accumulation": Accumulation, "pane_timestamp": PaneTimestamp, "on_time_pane": Emit, "final_pane": Emit,
}  # fmt: skip

PANE: Final[Readers] = {
    "key": Written.plain,
    "window": window_bounds,
    "timing": word_of(Timing),
    "index": Written.integer,
    "nonspeculative_index": Written.integer,
    "first": Written.boolean,
    "last": Written.boolean,
    "timestamp": Written.time,
    "retraction": Written.boolean,
}
"""The fields of a pane beside its aggregates."""


@dataclass(frozen=True, slots=True)
class WindowWords:
    """The words of the windowed step."""

    word: str = "window"
    fields: Collection[str] = (
        "window", "time", "trigger", "accumulation", "allowed_lateness", "aggregate", "pane_timestamp", "on_time_pane",
        "final_pane", "late", "evict", "ttl",
    )  # fmt: skip
    roles: Collection[str] = (OF,)

    def parse(self, given: Written, settings: Mapping[str, Written], time: TimeDomain) -> WindowedStep:
        parts: dict[str, Any] = {"time": time, "lateness": _lateness(settings)}
        if "aggregate" in settings:
            named = settings["aggregate"].members("aggregates by name")
            parts["aggregates"] = tuple((name, aggregate(each)) for name, each in named.items())
        parsers = {"window": window, "trigger": trigger, "evict": evictor}
        parts |= {
            "evictor" if name == "evict" else name: read(settings[name])
            for name, read in parsers.items()
            if name in settings
        }
        parts |= {name: kind(settings[name].one_of([*kind])) for name, kind in _CHOICES.items() if name in settings}
        if "ttl" in settings:
            parts["ttl"] = settings["ttl"].length()
        with given.locating():
            return WindowedStep(**parts)

    def readers(self, operator: Operator) -> Readers:
        assert isinstance(operator, WindowedStep)  # noqa: S101 - registered for it
        return {**PANE, **dict.fromkeys((name for name, _ in operator.aggregates), Written.plain)}

    def multisets(self, operator: Operator) -> Collection[str]:
        assert isinstance(operator, WindowedStep)  # noqa: S101 - registered for it
        return {name for name, kind in operator.aggregates if isinstance(kind, Collect)}


def _lateness(settings: Mapping[str, Written]) -> Lateness:
    rows = LateRows(settings["late"].one_of([*LateRows])) if "late" in settings else LateRows.PER_ELEMENT
    if "allowed_lateness" not in settings:
        return Lateness(rows=rows)
    allowed = settings["allowed_lateness"]
    with allowed.locating():
        return Lateness(None if allowed.value == "forever" else allowed.length(), rows)
