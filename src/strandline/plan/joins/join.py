"""Offer the fluent words of joins: `orders.join(payments).on("order_id").within(before="10m")`."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from strandline.model.arguments import checked_methods
from strandline.model.elements import Length
from strandline.model.joins import How
from strandline.model.panes import Accumulation
from strandline.model.triggers import Trigger
from strandline.model.windows import WindowKind
from strandline.plan.endpoints import Sink
from strandline.plan.joins.interval_join import interval_join
from strandline.plan.joins.keys_and_columns import SUFFIX, JoinedKeys, joined_keys
from strandline.plan.joins.window_join import window_join
from strandline.plan.nodes import Node

S = TypeVar("S")
P = TypeVar("P")


@dataclass(frozen=True, slots=True)
@checked_methods
class Join(Generic[S, P]):
    """Two streams to join."""

    left: Node
    right: Node
    make_stream: Callable[[Node], S] = field(repr=False, compare=False)
    make_panes: Callable[[Node], P] = field(repr=False, compare=False)

    def on(self, *columns: str, **pairs: str) -> "JoinOnKeys[S, P]":
        """Set the key columns: `on("order_id")`, or `on(order_id="id")` if the right column has another name."""
        keys = joined_keys(self.left, self.right, columns, pairs)
        return JoinOnKeys(self.left, self.right, keys, self.make_stream, self.make_panes)


@dataclass(frozen=True, slots=True)
@checked_methods
class JoinOnKeys(Generic[S, P]):
    """Two streams to join on key columns."""

    left: Node
    right: Node
    keys: JoinedKeys
    make_stream: Callable[[Node], S] = field(repr=False, compare=False)
    make_panes: Callable[[Node], P] = field(repr=False, compare=False)

    def within(  # noqa: PLR0913 - the options of a join
        self,
        *,
        before: Length | None = None,
        after: Length | None = None,
        how: How | str = How.INNER,
        where: str | None = None,
        inclusive: bool = True,
        allowed_lateness: Length | None = None,
        suffix: str = SUFFIX,
        late: Sink | None = None,
    ) -> S:
        """Join each left row with the right rows up to `before` earlier and `after` later in event time.

        `how` is `inner`, `left`, `right`, `full`, `semi` or `anti`. Rows without a partner are emitted when the
        watermark shows that none can come. `where` is a condition on a pair, such as `"amount >= price"`. A right
        column whose name the left stream has, too, gets the suffix. Rows behind the watermark by `allowed_lateness` or
        more go to the late output, beside the rows or to the sink `late`. The time of a pair is the later of the two.
        """
        node = interval_join(
            self.left, self.right, self.keys, before=before, after=after, how=how, where=where, inclusive=inclusive,
            allowed_lateness=allowed_lateness, suffix=suffix, late=late,
        )  # fmt: skip
        return self.make_stream(node)

    def window(  # noqa: PLR0913 - the options of a join
        self,
        window: WindowKind,
        *,
        how: How | str = How.INNER,
        trigger: Trigger | None = None,
        accumulate: Accumulation | str = Accumulation.DISCARDING,
        allowed_lateness: Length | None = None,
        where: str | None = None,
        suffix: str = SUFFIX,
        late: Sink | None = None,
    ) -> P:
        """Join the rows of both streams that are in the same window: `window(sl.tumbling("10m"), how="left")`.

        A session contains rows of both streams. A window is joined when its trigger fires, by default at its end; rows
        without a partner are emitted then. If rows arrive within the allowed lateness, the window fires again:
        `accumulate` says whether that emits new rows only, all rows again, or the difference with retractions. The time
        of all rows is the end of the window.
        """
        node = window_join(
            self.left, self.right, self.keys, window, how=how, trigger=trigger, accumulate=Accumulation(accumulate),
            allowed_lateness=allowed_lateness, where=where, suffix=suffix, late=late,
        )  # fmt: skip
        return self.make_panes(node)
