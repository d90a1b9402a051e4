"""Define temporal joins: each row of a stream with the version of its key that is valid at its event time."""

from dataclasses import dataclass
from enum import StrEnum

from strandline.errors import InvalidStep
from strandline.model.elements import ZERO, Duration, TimeDomain
from strandline.model.expressions import Expression
from strandline.model.joins import How


class Direction(StrEnum):
    """Which row of the right stream a left row is joined with, as in the as-of join of Polars."""

    BACKWARD = "backward"
    """The last one at or before the left row: the version that is valid at its time."""
    FORWARD = "forward"
    """The first one at or after the left row."""
    NEAREST = "nearest"
    """The one with the smallest distance; of two with the same distance the later one."""


@dataclass(frozen=True, slots=True)
class TemporalJoin:
    """Join each left row with the right row of its key that is valid at its event time.

    Right rows are versions: each is valid until the next one of its key. Of versions with one key and time the last in
    source order counts. A left row is emitted when the watermark has reached its time (forward and nearest: when it is
    `tolerance` past it), with its own event time. A right row behind the watermark still counts for left rows that are
    not yet emitted.
    """

    how: How = How.INNER
    """`inner` drops a left row without a version, `left` emits it with nulls."""
    direction: Direction = Direction.BACKWARD
    tolerance: Duration | None = None
    """Greatest distance in event time between a left row and its version."""
    corrections: Duration = ZERO
    """How far behind the watermark emitted rows are retracted and emitted again when a late version changes them."""
    deleted: Expression | None = None
    """A condition on right rows: a row for which it is true ends the version before it and is none itself."""
    signs: bool = False
    """Whether right rows may be retractions, which are deletions unless an insertion of their time follows."""
    ignores_retractions: bool = False
    """Whether retractions are dropped, because each is followed by a later version, as after a deduplication."""
    renamed: tuple[tuple[str, str], ...] = ()
    """Right columns that are renamed in the result, because the left stream has a column of that name."""
    columns: tuple[tuple[str, str, str | None], ...] = ()
    """The columns of the result besides the key: role of their input, name in the result, type in DDL if known."""

    def __post_init__(self) -> None:
        if self.how not in (How.INNER, How.LEFT):
            raise InvalidStep(
                f"a temporal join cannot be a {self.how} join: it emits rows of the left stream",
                hint="choose inner or left",
            )
        if self.tolerance is not None and self.tolerance < ZERO:
            raise InvalidStep(f"a tolerance of {self.tolerance} is negative", hint="give zero or more")
        if self.tolerance is None and self.direction is not Direction.BACKWARD:
            raise InvalidStep(
                f"the direction {self.direction} needs a tolerance: without one a left row could wait forever",
                hint=f'as in as_of(…, direction="{self.direction}", tolerance="10s")',
            )
        if self.corrections < ZERO:
            raise InvalidStep(f"corrections for {self.corrections} are negative", hint="give zero or more")
        if self.deleted is not None and self.direction is not Direction.BACKWARD:
            raise InvalidStep(
                f"the direction {self.direction} cannot process deletions: it joins events, not versions",
                hint='use direction="backward", or filter deletions out before the join',
            )

    @property
    def time(self) -> TimeDomain:
        return TimeDomain.EVENT

    @property
    def retracts(self) -> bool:
        return self.corrections > ZERO

    @property
    def delay(self) -> Duration:
        """Return how far past the time of a left row the watermark is when the row is emitted."""
        return ZERO if self.direction is Direction.BACKWARD or self.tolerance is None else self.tolerance

    @property
    def reach(self) -> Duration | None:
        """Return how far past a version the watermark is when only emitted rows can have it; None if never."""
        if self.tolerance is None:
            return None
        return Duration(self.tolerance.ms * 2) if self.direction is Direction.NEAREST else self.tolerance
