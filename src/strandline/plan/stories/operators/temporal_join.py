"""Parse a temporal join of a story. Its rows have the columns of both inputs."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from strandline.model.elements import TimeDomain
from strandline.model.expressions import expression
from strandline.model.joins import LEFT, RIGHT, How
from strandline.model.operators import Operator
from strandline.model.temporal_join import Direction, TemporalJoin
from strandline.plan.stories.located_values import Written

_FIELDS = ("how", "direction", "tolerance", "corrections", "deleted", "ignore_retractions", "rename")


@dataclass(frozen=True, slots=True)
class TemporalJoinWords:
    """The words of the temporal join."""

    word: str = "as_of"
    fields: Collection[str] = ("as_of",)
    roles: Collection[str] = (LEFT, RIGHT)

    def parse(self, given: Written, settings: Mapping[str, Written], time: TimeDomain) -> TemporalJoin:  # noqa: ARG002 - it has event time
        fields = settings["as_of"].members_among(_FIELDS, "a temporal join")
        parts: dict[str, Any] = {}
        if "how" in fields:
            parts["how"] = How(fields["how"].one_of([*How]))
        if "direction" in fields:
            parts["direction"] = Direction(fields["direction"].one_of([*Direction]))
        parts |= {name: fields[name].length() for name in ("tolerance", "corrections") if name in fields}
        if "deleted" in fields:
            with fields["deleted"].locating():
                parts["deleted"] = expression(fields["deleted"].text("a condition"))
        if "ignore_retractions" in fields:
            parts["ignores_retractions"] = fields["ignore_retractions"].boolean()
        # Time and key, which all elements have, get a name of their own in each join of a chain.
        renamed = {name: f"{name}_{settings[RIGHT].value}" for name in ("at", "key")} if RIGHT in settings else {}
        if "rename" in fields:
            renamed |= {old: new.text("a name") for old, new in fields["rename"].members("new names by column").items()}
        with given.locating():
            return TemporalJoin(**parts, renamed=tuple(renamed.items()))

    def readers(self, operator: Operator) -> None:  # noqa: ARG002 - the same for all
        return None

    def multisets(self, operator: Operator) -> Collection[str]:  # noqa: ARG002 - the same for all
        return ()
