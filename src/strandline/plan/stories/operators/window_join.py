"""Parse a window join of a story. Its rows are panes with the columns of both inputs."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from strandline.model.elements import TimeDomain
from strandline.model.expressions import expression
from strandline.model.joins import LEFT, RIGHT, How
from strandline.model.operators import Operator
from strandline.model.panes import Accumulation, Lateness
from strandline.model.window_join import WindowJoin
from strandline.plan.stories.located_values import Written
from strandline.plan.stories.operators.contract import Readers, WithAnyColumn
from strandline.plan.stories.operators.window import PANE
from strandline.plan.stories.parse_triggers import trigger
from strandline.plan.stories.parse_windows import window

_FIELDS = ("window", "how", "trigger", "accumulation", "where", "rename")


@dataclass(frozen=True, slots=True)
class WindowJoinWords:
    """The words of the window join."""

    word: str = "window_join"
    fields: Collection[str] = ("window_join", "allowed_lateness")
    roles: Collection[str] = (LEFT, RIGHT)

    def parse(self, given: Written, settings: Mapping[str, Written], time: TimeDomain) -> WindowJoin:  # noqa: ARG002 - it has event time
        fields = settings["window_join"].members_among(_FIELDS, "a window join")
        parts: dict[str, Any] = {"window": window(settings["window_join"].required(fields, "window"))}
        if "how" in fields:
            parts["how"] = How(fields["how"].one_of([*How]))
        if "trigger" in fields:
            parts["trigger"] = trigger(fields["trigger"])
        if "accumulation" in fields:
            parts["accumulation"] = Accumulation(fields["accumulation"].one_of([*Accumulation]))
        if "where" in fields:
            with fields["where"].locating():
                parts["condition"] = expression(fields["where"].text("a condition"))
        # Time and key, which all elements have, get a name of their own in each join of a chain.
        renamed = {name: f"{name}_{settings[RIGHT].value}" for name in ("at", "key")} if RIGHT in settings else {}
        if "rename" in fields:
            renamed |= {old: new.text("a name") for old, new in fields["rename"].members("new names by column").items()}
        if "allowed_lateness" in settings:
            parts["lateness"] = Lateness(settings["allowed_lateness"].length())
        with given.locating():
            return WindowJoin(**parts, renamed=tuple(renamed.items()))

    def readers(self, operator: Operator) -> Readers:  # noqa: ARG002 - the same for all
        return WithAnyColumn(PANE)

    def multisets(self, operator: Operator) -> Collection[str]:  # noqa: ARG002 - the same for all
        return ()
