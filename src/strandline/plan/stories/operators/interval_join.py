"""Parse an interval join of a story. Its rows have the columns of both inputs."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from strandline.model.elements import ZERO, Duration, TimeDomain
from strandline.model.expressions import expression
from strandline.model.joins import LEFT, RIGHT, How, IntervalJoin
from strandline.model.operators import Operator
from strandline.plan.stories.located_values import Written


@dataclass(frozen=True, slots=True)
class JoinWords:
    """The words of the interval join."""

    word: str = "join"
    fields: Collection[str] = ("join", "allowed_lateness")
    roles: Collection[str] = (LEFT, RIGHT)

    def parse(self, given: Written, settings: Mapping[str, Written], time: TimeDomain) -> IntervalJoin:  # noqa: ARG002 - it has event time
        fields = settings["join"].members_among(("before", "after", "how", "where", "rename"), "a join")
        if "before" not in fields and "after" not in fields:
            raise settings["join"].error("before or after")
        before = fields["before"].length() if "before" in fields else ZERO
        after = fields["after"].length() if "after" in fields else ZERO
        parts: dict[str, Any] = {"lower": Duration(-before.ms), "upper": after}
        if "how" in fields:
            parts["how"] = How(fields["how"].one_of([*How]))
        if "where" in fields:
            with fields["where"].locating():
                parts["condition"] = expression(fields["where"].text("a condition"))
        # Time and key, which all elements have, get a name of their own in each join of a chain.
        renamed = {name: f"{name}_{settings[RIGHT].value}" for name in ("at", "key")} if RIGHT in settings else {}
        if "rename" in fields:
            renamed |= {old: new.text("a name") for old, new in fields["rename"].members("new names by column").items()}
        if "allowed_lateness" in settings:
            parts["lateness"] = settings["allowed_lateness"].length()
        with given.locating():
            return IntervalJoin(**parts, renamed=tuple(renamed.items()))

    def readers(self, operator: Operator) -> None:  # noqa: ARG002 - the same for all
        return None

    def multisets(self, operator: Operator) -> Collection[str]:  # noqa: ARG002 - the same for all
        return ()
