"""Parse a deduplication of a story. Its rows are elements, with any column."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from strandline.model.deduplicate import Deduplicate, Keep
from strandline.model.elements import TimeDomain
from strandline.model.operators import Operator
from strandline.plan.stories.located_values import Written
from strandline.plan.stories.operators.contract import OF


@dataclass(frozen=True, slots=True)
class DeduplicateWords:
    """The words of deduplication."""

    word: str = "deduplicate"
    fields: Collection[str] = ("deduplicate", "time", "allowed_lateness")
    roles: Collection[str] = (OF,)

    def parse(self, given: Written, settings: Mapping[str, Written], time: TimeDomain) -> Deduplicate:
        fields = settings["deduplicate"].members_among(("keep", "within"), "a deduplication")
        parts: dict[str, Any] = {"time": time}
        if "keep" in fields:
            parts["keep"] = Keep(fields["keep"].one_of([*Keep]))
        if "within" in fields:
            parts["within"] = fields["within"].length()
        if "allowed_lateness" in settings:
            parts["lateness"] = settings["allowed_lateness"].length()
        with given.locating():
            return Deduplicate(**parts)

    def readers(self, operator: Operator) -> None:  # noqa: ARG002 - the same for all
        return None

    def multisets(self, operator: Operator) -> Collection[str]:  # noqa: ARG002 - the same for all
        return ()
