"""Build window joins: `orders.join(shipments).on("order_id").window(sl.tumbling("1h"), how="left")`."""

from strandline.errors import InvalidStep
from strandline.model.elements import ZERO, Length, duration
from strandline.model.joins import LEFT, RIGHT, How
from strandline.model.panes import Accumulation, Lateness
from strandline.model.triggers import DEFAULT, Trigger
from strandline.model.window_join import WindowJoin
from strandline.model.windows import WindowKind
from strandline.plan.endpoints import Sink
from strandline.plan.joins.keys_and_columns import JoinedKeys, join_condition, join_type, joined_columns
from strandline.plan.lineage import paths_to
from strandline.plan.nodes import KeyedInput, KeyedNode, Node


def window_join(  # noqa: PLR0913 - the options of a join
    left: Node,
    right: Node,
    keys: JoinedKeys,
    window: WindowKind,
    *,
    how: How | str,
    trigger: Trigger | None,
    accumulate: Accumulation,
    allowed_lateness: Length | None,
    where: str | None,
    suffix: str,
    late: Sink | None,
) -> KeyedNode:
    """Check the options of a window join and return its node."""
    for role, node in ((LEFT, left), (RIGHT, right)):
        if any(path.time is not None and path.time.column is None for path in paths_to(node)):
            raise InvalidStep(
                f"a window join assigns windows by event time, and the {role} stream uses processing time",
                hint="call event_time(column, watermark) on both streams",
            )
    renamed, columns = joined_columns(left, right, keys, suffix)
    condition = None if where is None else join_condition(where, keys, columns)
    allowed = ZERO if allowed_lateness is None else duration(allowed_lateness)
    operator = WindowJoin(
        window, join_type(how), DEFAULT if trigger is None else trigger, accumulate, Lateness(allowed), condition,
        renamed, columns,
    )  # fmt: skip
    streams = (KeyedInput(LEFT, left, keys.left), KeyedInput(RIGHT, right, keys.right))
    return KeyedNode(streams, operator, late_sink=late)
