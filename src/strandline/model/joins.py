"""Define joins: which rows of two streams form a pair, and what becomes of rows without a partner."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from strandline.errors import InvalidStep
from strandline.model.elements import ZERO, Duration, TimeDomain, Timestamp
from strandline.model.expressions import Expression

LEFT: Final = "left"
RIGHT: Final = "right"
"""The roles of the two inputs of a join."""


class How(StrEnum):
    """Join types: which rows a join emits."""

    INNER = "inner"
    LEFT = "left"
    """Pairs, and left rows without a partner, with nulls for the right columns."""
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    """Left rows with a partner, once each, instead of pairs."""
    ANTI = "anti"
    """Left rows without a partner, instead of pairs."""


@dataclass(frozen=True, slots=True)
class IntervalJoin:
    """Join rows of two streams with equal keys whose event times are close.

    A right row is a partner of a left row if its event time is in `[left + lower, left + upper]` and the condition is
    true. A row waits until the watermark shows that no partner can come any more.
    """

    lower: Duration
    upper: Duration
    how: How = How.INNER
    lateness: Duration = ZERO
    """A row that is less than this behind the watermark is still joined."""
    condition: Expression | None = None
    """A condition on a pair, over the columns of both rows under their names in the result."""
    renamed: tuple[tuple[str, str], ...] = ()
    """Right columns that are renamed in the result, because the left stream has a column of that name."""
    columns: tuple[tuple[str, str, str | None], ...] = ()
    """The columns of the result besides the key: role of their input, name in the result, type in DDL if known."""

    def __post_init__(self) -> None:
        if self.lower > self.upper:
            raise InvalidStep(
                f"no time is from {self.lower} to {self.upper} after a left row: the bounds cross",
                hint='within(before="10m", after="0s") joins right rows from 10 minutes before the left row',
            )
        if self.lateness < ZERO:
            raise InvalidStep(f"an allowed lateness of {self.lateness} is negative", hint="allow zero or more")

    @property
    def time(self) -> TimeDomain:
        return TimeDomain.EVENT

    @property
    def emits_pairs(self) -> bool:
        return self.how not in (How.SEMI, How.ANTI)

    def pads(self, role: str) -> bool:
        """Tell whether rows of an input are emitted when they end without a partner, with nulls for the other side."""
        if role == LEFT:
            return self.how in (How.LEFT, How.FULL, How.ANTI)
        return self.how in (How.RIGHT, How.FULL)

    def reach(self, role: str) -> Duration:
        """Return how far after a row of an input its last partner may be."""
        return self.upper if role == LEFT else -self.lower

    def is_pair(self, left: Timestamp, right: Timestamp) -> bool:
        """Tell whether two event times are close enough."""
        return left + self.lower <= right <= left + self.upper
