"""Parse the lookup of a story: a table whose rows the steps of the story give."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from strandline.model import ddl
from strandline.model.lookup_join import LookupJoin, Missing, OnFailure
from strandline.plan.nodes import Node, Stateless
from strandline.plan.stories.located_values import Written
from strandline.plan.stories.story_pipeline import KEY

DOWN = "down"
"""A table that does not answer."""


@dataclass(frozen=True, slots=True)
class StoryTable:
    """A lookup table of a story. Its rows stand in the steps."""

    name: str
    columns: str

    @property
    def table_columns(self) -> Mapping[str, str]:
        return ddl.parse(self.columns)

    @property
    def key_columns(self) -> tuple[str, ...]:
        return ()


def enriched(given: Written, of: Node) -> Stateless:
    """Parse a lookup: `{table: users, columns: "key string, city string", on: key, missing: drop}`."""
    fields = given.members_among(("table", "columns", "on", "missing", "on_failure", "rename"), "a lookup")
    with given.locating():
        kinds = ddl.parse(given.required(fields, "columns").text("columns in DDL"))
        ddl.require_types(kinds)
    keys = _keys(fields["on"]) if "on" in fields else ((KEY, KEY),)
    for _, name in keys:
        if name not in kinds:
            raise fields.get("on", given).error(f"a key among {', '.join(kinds)}")
    renamed = fields["rename"].members("new names by column") if "rename" in fields else {}
    new = {name: renamed[name].text("a name") if name in renamed else name for name in kinds}
    added = tuple((name, new[name], kind) for name, kind in kinds.items() if name not in {other for _, other in keys})
    options: dict[str, Any] = {}
    if "missing" in fields:
        options["missing"] = Missing(fields["missing"].one_of([*Missing]))
    if "on_failure" in fields:
        options["on_failure"] = OnFailure(fields["on_failure"].one_of([*OnFailure]))
    name = given.required(fields, "table").text("a name")
    table = StoryTable(name, ", ".join(f"{column} {kind}" for column, kind in kinds.items()))
    return Stateless(of, LookupJoin(table, keys, added, **options))


def _keys(given: Written) -> tuple[tuple[str, str], ...]:
    """Parse key columns: `on: key`, `on: [shop, user]`, or `on: {user: id}` if the table's column has another name."""
    if isinstance(given.value, dict):
        return tuple((name, other.text("a column")) for name, other in given.members().items())
    names = given.items() if isinstance(given.value, list) else [given]
    return tuple((name, name) for name in (each.text("a column") for each in names))


def tables_of(given: Written) -> Mapping[str, tuple[Mapping[str, Any], ...] | None]:
    """Parse the rows of tables by name; `down` if a table does not answer from now on."""
    return {
        name: None if each.value == DOWN else tuple(_row(row) for row in each.items("a list of rows, or down"))
        for name, each in given.members("rows of tables by name").items()
    }


def _row(given: Written) -> Mapping[str, Any]:
    return {name: each.plain() for name, each in given.members("a row, as a mapping").items()}
