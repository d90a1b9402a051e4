"""Parse a table join of a story. Its rows have the columns of all tables."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from strandline.model.elements import TimeDomain
from strandline.model.joins import How
from strandline.model.operators import Operator
from strandline.model.table_join import TableJoin, table_role
from strandline.plan.stories.located_values import Written
from strandline.plan.stories.operators.contract import TABLES


@dataclass(frozen=True, slots=True)
class TableJoinWords:
    """The words of the table join."""

    word: str = "join_tables"
    fields: Collection[str] = ("join_tables",)
    roles: Collection[str] = (TABLES,)

    def parse(self, given: Written, settings: Mapping[str, Written], time: TimeDomain) -> TableJoin:
        words = settings["join_tables"]
        known = ("how", "expire_after", "time_to_live", "rename")
        fields = {} if words.value is None else words.members_among(known, "a join of tables")
        names = [each.text("a name") for each in settings[TABLES].items("a list of tables")]
        parts: dict[str, Any] = {"time": time, "joins": _joins(fields.get("how"), len(names) - 1)}
        for name, domain in (("expire_after", TimeDomain.EVENT), ("time_to_live", TimeDomain.PROCESSING)):
            if name in fields:
                parts |= {"ttl": fields[name].length(), "ttl_time": domain}
        # Time and key, which all elements have, get a name of their own in each join of a chain.
        renamed = {(table_role(n), name): f"{name}_{of}" for n, of in enumerate(names) if n for name in ("at", "key")}
        if "rename" in fields:
            for of, columns in fields["rename"].members("new names by table").items():
                role = table_role(names.index(of)) if of in names else columns.one_of(names)
                new_names = columns.members("new names by column").items()
                renamed |= {(role, old): new.text("a name") for old, new in new_names}
        with given.locating():
            return TableJoin(**parts, renamed=tuple((*of, new) for of, new in renamed.items()))

    def readers(self, operator: Operator) -> None:  # noqa: ARG002 - the same for all
        return None

    def multisets(self, operator: Operator) -> Collection[str]:  # noqa: ARG002 - the same for all
        return ()


def _joins(given: Written | None, many: int) -> tuple[How, ...]:
    """Parse how tables are joined: one word for all, or a list with one for each table after the first."""
    if given is None:
        return (How.INNER,) * many
    if isinstance(given.value, list):
        return tuple(How(each.one_of([*How])) for each in given.items())
    return (How(given.one_of([*How])),) * many
