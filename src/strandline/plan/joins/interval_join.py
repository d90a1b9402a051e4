"""Build interval joins: `orders.join(payments).on("order_id").within(before="10m")`."""

from strandline.errors import InvalidStep
from strandline.model.elements import INSTANT, ZERO, Duration, Length, duration
from strandline.model.joins import LEFT, RIGHT, How, IntervalJoin
from strandline.plan.endpoints import Sink
from strandline.plan.joins.keys_and_columns import JoinedKeys, join_condition, join_type, joined_columns
from strandline.plan.lineage import paths_to
from strandline.plan.nodes import KeyedInput, KeyedNode, Node


def interval_join(  # noqa: PLR0913 - the options of a join
    left: Node,
    right: Node,
    keys: JoinedKeys,
    *,
    before: Length | None,
    after: Length | None,
    how: How | str,
    where: str | None,
    inclusive: bool,
    allowed_lateness: Length | None,
    suffix: str,
    late: Sink | None,
) -> KeyedNode:
    """Check the options of an interval join and return its node."""
    if before is None and after is None:
        raise InvalidStep("a join needs an interval", hint='as in within(before="10m"), or within(before="0s")')
    for role, node in ((LEFT, left), (RIGHT, right)):
        if any(path.time is not None and path.time.column is None for path in paths_to(node)):
            raise InvalidStep(
                f"a join compares event times, and the {role} stream uses processing time",
                hint="call event_time(column, watermark) on both streams",
            )
    narrower = Duration(0) if inclusive else INSTANT
    lower = -(ZERO if before is None else duration(before))
    upper = ZERO if after is None else duration(after)
    renamed, columns = joined_columns(left, right, keys, suffix)
    condition = None if where is None else join_condition(where, keys, columns)
    operator = IntervalJoin(
        Duration(lower.ms + narrower.ms), Duration(upper.ms - narrower.ms), join_type(how),
        ZERO if allowed_lateness is None else duration(allowed_lateness), condition, renamed, columns,
    )  # fmt: skip
    streams = (KeyedInput(LEFT, left, keys.left), KeyedInput(RIGHT, right, keys.right))
    return KeyedNode(streams, operator, late_sink=late)
