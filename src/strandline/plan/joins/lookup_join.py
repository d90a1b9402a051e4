"""Build lookup joins: `clicks.enrich(users).on("user_id")`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from strandline.errors import InvalidStep
from strandline.model.arguments import checked_methods
from strandline.model.elements import ZERO, Length, duration
from strandline.model.lookup_join import LookupJoin, LookupLimits, LookupTable, Missing, OnFailure
from strandline.plan.joins.keys_and_columns import type_of
from strandline.plan.nodes import Node, Stateless

S = TypeVar("S")

_KEYS: Final = (
    "string", "long", "bigint", "int", "integer", "short", "smallint", "byte", "tinyint", "boolean",
)  # fmt: skip
"""Types of keys: equal values have one form in every system."""
_SAME: Final = {"bigint": "long", "integer": "int", "smallint": "short", "tinyint": "byte"}
"""Types with two names."""


@dataclass(frozen=True, slots=True)
@checked_methods
class Enrichment(Generic[S]):
    """A stream to enrich from a table."""

    left: Node
    table: LookupTable
    missing: Missing
    on_failure: OnFailure
    pin: bool
    limits: LookupLimits
    suffix: str
    make_stream: Callable[[Node], S] = field(repr=False, compare=False)

    def on(self, *columns: str, **pairs: str) -> S:
        """Set the key columns: `on("user_id")`, or `on(user="user_id")` if the table's column has another name."""
        if self.left.retracts:
            raise InvalidStep(
                "a stream with retractions cannot be enriched: a retraction might get other columns than its row",
                hint="enrich before the aggregation, or use accumulate(sl.accumulating)",
            )
        keys = (*((name, name) for name in columns), *pairs.items())
        _check_keys(keys, self.left, self.table)
        added = _columns(keys, self.left, self.table.table_columns, self.suffix)
        join = LookupJoin(self.table, keys, added, self.missing, self.on_failure, self.pin, self.limits)
        return self.make_stream(Stateless(self.left, join))


def limits_of(
    cache_for: Length | None, cache_missing_for: Length | None, cache_rows: int, keys_per_request: int,
    concurrency: int, per_second: float | None, attempts: int,
) -> LookupLimits:  # fmt: skip
    """Return the limits of a lookup. Missing keys are cached as long as rows are, unless it is said otherwise."""
    stays = ZERO if cache_for is None else duration(cache_for)
    missing = stays if cache_missing_for is None else duration(cache_missing_for)
    return LookupLimits(stays, missing, cache_rows, keys_per_request, concurrency, per_second, attempts)


def _check_keys(keys: tuple[tuple[str, str], ...], left: Node, table: LookupTable) -> None:
    """Check that key columns exist, that their types agree, and that the table finds rows by them."""
    if not keys:
        raise InvalidStep("on(…) names no column", hint='as in on("user_id"), or on(user="user_id") if names differ')
    for side, names in (("column", [name for name, _ in keys]), ("column of the table", [name for _, name in keys])):
        if len({*names}) < len(names):
            raise InvalidStep(f"on(…) names a {side} twice", hint="name each once")
    for name, other in keys:
        kind = type_of(left.columns, name, "left")
        partner = type_of(dict(table.table_columns), other, f"table {table.name}")
        assert partner is not None  # noqa: S101 - a table has types for all its columns
        if partner not in _KEYS:
            raise InvalidStep(f"the key {other!r} is a {partner}", hint="find rows by strings, integers or booleans")
        if kind is not None and _SAME.get(kind, kind) != _SAME.get(partner, partner):
            raise InvalidStep(
                f"the keys {name!r} and {other!r} have different types",
                detail=f"{kind} in the stream, {partner} in {table.name}",
                hint=f'cast the stream\'s, as in with_columns({name}="cast({name} as {partner})")',
            )
    wanted = table.key_columns
    if wanted and {*wanted} != {other for _, other in keys}:
        raise InvalidStep(
            f"{table.name} finds rows by {', '.join(wanted)} only",
            detail=f"on(…) names {', '.join(other for _, other in keys)}",
            hint=f"name {', '.join(wanted)}",
        )


def _columns(
    keys: tuple[tuple[str, str], ...], left: Node, kinds: Mapping[str, str], suffix: str
) -> tuple[tuple[str, str, str], ...]:
    """Return the table's other columns with their names in the result."""
    own, others = left.columns, [name for name in kinds if name not in {other for _, other in keys}]
    named = {name: f"{name}{suffix}" if name in own else name for name in others}
    taken = [*own, *named.values()]
    for name, new in named.items():
        if taken.count(new) > 1:
            raise InvalidStep(
                f"the stream and the table have a column {name!r}, and {new!r} is taken too",
                hint='choose another suffix, as in enrich(users, suffix="_of_user")',
            )
    return tuple((name, new, kinds[name]) for name, new in named.items())
