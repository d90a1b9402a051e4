"""Compare the columns of a lookup table in a pipeline with those of the database's table."""

from collections.abc import Callable, Mapping

from strandline.errors import LookupFailed
from strandline.model.suggestions import did_you_mean, listed


def refuse_missing_columns(what: str, found: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """Raise for the first column that the table does not have."""
    for name in wanted:
        if name not in found:
            raise LookupFailed(
                f"{what} has no column {name!r}",
                detail=f"it has {listed(found)}",
                hint=did_you_mean(name, [*found], "correct the columns of the lookup"),
            )


def refuse_other_types(
    what: str, found: Mapping[str, str], wanted: Mapping[str, str], fits: Callable[[str, str], bool]
) -> None:
    """Raise for the first column whose type is another one in the table."""
    for name, kind in wanted.items():
        if not fits(kind, found[name]):
            raise LookupFailed(
                f"the column {name!r} of {what} is {found[name]}, and the lookup reads it as {kind}",
                hint="correct the columns of the lookup, or read a view that casts it",
            )
