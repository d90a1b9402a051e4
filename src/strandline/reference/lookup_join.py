"""Look up the row of a table for each row of a stream, one after the other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strandline.errors import LookupUnavailable
from strandline.model.lookup_join import LookupJoin, Missing, OnFailure

Rows = Sequence[Mapping[str, Any]] | None
"""The current rows of a table; None while it does not answer."""

LOOKUP_FAILED = "lookup_failed"


@dataclass(frozen=True, slots=True)
class LookedUp:
    """The row after a lookup; None if it was dropped, or became a dead letter for this reason."""

    row: Mapping[str, Any] | None
    failed: str = ""
    is_unmatched: bool = False


def look_up(join: LookupJoin, row: Mapping[str, Any], table: Rows) -> LookedUp:
    """Add the columns of the table's row with the same key."""
    key = tuple(row.get(name) for name in join.key_names)
    found: list[Mapping[str, Any]] = []
    if None not in key:  # a null equals nothing, so the table is not asked
        if table is None:
            if join.on_failure is OnFailure.DEAD_LETTER:
                return LookedUp(None, LOOKUP_FAILED)
            raise LookupUnavailable(f"{join.table.name} does not answer")
        found = [each for each in table if tuple(each.get(name) for name in join.table_keys) == key]
    if len(found) > 1:
        return LookedUp(None, LOOKUP_FAILED)
    if not found and join.missing is Missing.DROP:
        return LookedUp(None, is_unmatched=True)
    (match,) = found or ({},)
    added = {new: match.get(name) for name, new, _ in join.columns}
    return LookedUp({**row, **added}, is_unmatched=not found)
