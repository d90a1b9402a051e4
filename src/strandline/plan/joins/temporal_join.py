"""Build temporal joins: `orders.as_of(rates).on("currency")`."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from strandline.errors import InvalidStep
from strandline.model.arguments import checked_methods
from strandline.model.deduplicate import Deduplicate
from strandline.model.elements import ZERO, Length, duration
from strandline.model.expressions import Expression, names_of
from strandline.model.expressions import expression as parse_condition
from strandline.model.joins import LEFT, RIGHT, How
from strandline.model.temporal_join import Direction, TemporalJoin
from strandline.plan.endpoints import Sink
from strandline.plan.joins.keys_and_columns import join_type, joined_columns, joined_keys, type_of
from strandline.plan.lineage import paths_to
from strandline.plan.nodes import KeyedInput, KeyedNode, Node

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
@checked_methods
class AsOf(Generic[S]):
    """A stream, and the stream of versions that its rows are joined with."""

    left: Node
    right: Node
    operator: TemporalJoin
    suffix: str
    late: Sink | None
    make_stream: Callable[[Node], S] = field(repr=False, compare=False)

    def on(self, *columns: str, **pairs: str) -> S:
        """Set the key columns: `on("currency")`, or `on(currency="code")` if the right column has another name."""
        keys = joined_keys(self.left, self.right, columns, pairs)
        renamed, names = joined_columns(self.left, self.right, keys, self.suffix)
        operator = replace(self.operator, renamed=renamed, columns=names)
        streams = (KeyedInput(LEFT, self.left, keys.left), KeyedInput(RIGHT, self.right, keys.right))
        return self.make_stream(KeyedNode(streams, operator, late_sink=self.late))


def temporal_join(
    left: Node,
    right: Node,
    *,
    how: How | str,
    direction: Direction | str,
    tolerance: Length | None,
    corrections: Length | None,
    deleted: str | None,
) -> TemporalJoin:
    """Check the options of a temporal join and return its definition, which has no columns yet."""
    _refuse_processing_time(left, right)
    _refuse_retracted_left_rows(left)
    return TemporalJoin(
        join_type(how),
        _direction(direction),
        None if tolerance is None else duration(tolerance),
        ZERO if corrections is None else duration(corrections),
        None if deleted is None else _deletion(deleted, right),
        ignores_retractions=_is_deduplicated(right),
    )


def _direction(given: Direction | str) -> Direction:
    try:
        return Direction(given)
    except ValueError:
        raise InvalidStep(f"there is no direction {given!r}", hint=f"choose one of {', '.join(Direction)}") from None


def _refuse_processing_time(left: Node, right: Node) -> None:
    for role, node in ((LEFT, left), (RIGHT, right)):
        if any(path.time is not None and path.time.column is None for path in paths_to(node)):
            raise InvalidStep(
                f"a temporal join compares event times, and the {role} stream uses processing time",
                hint="call event_time(column, watermark) on both streams",
            )


def _refuse_retracted_left_rows(left: Node) -> None:
    for path in paths_to(left):
        if isinstance(path.origin, KeyedNode) and path.origin.plan.retracts:
            raise InvalidStep(
                f"a temporal join cannot process retractions of left rows, and {path.origin.name} sends them",
                hint="make that step discarding or accumulating; only the right stream may be a changelog",
            )


def _is_deduplicated(right: Node) -> bool:
    """Tell whether each retraction of the right stream is followed by a later version, as after a deduplication."""
    origins = [path.origin for path in paths_to(right) if isinstance(path.origin, KeyedNode)]
    replacing = [isinstance(origin.operator, Deduplicate) for origin in origins if origin.plan.retracts]
    if any(replacing) and not all(replacing):
        raise InvalidStep(
            "the right stream is a union of a deduplication and of another step with retractions",
            detail="a retraction means a newer version in the first, and a deletion in the second",
            hint="join them one after the other",
        )
    return any(replacing)


def _deletion(text: str, right: Node) -> Expression:
    parsed = parse_condition(text)
    for name in sorted(names_of(parsed.tree), key=lambda each: (each.scope, each.name)):
        if name.scope:
            raise InvalidStep(f"the condition names {name.scope}.{name.name}", hint=f"write {name.name} alone")
        type_of(right.columns, name.name, RIGHT)
    return parsed
