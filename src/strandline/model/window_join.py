"""Define window joins: rows of two streams with equal keys are pairs if one window contains both."""

from dataclasses import dataclass

from strandline.errors import InvalidStep, InvalidTrigger
from strandline.model.aggregates import Aggregate, Count
from strandline.model.elements import ZERO, TimeDomain
from strandline.model.expressions import Expression
from strandline.model.joins import LEFT, How
from strandline.model.panes import Accumulation, Lateness
from strandline.model.steps import WindowedStep
from strandline.model.triggers import DEFAULT, Trigger, When, describe, finishes_by_watermark_only, may_finish, parts_of
from strandline.model.windows import Cumulating, GapColumn, Session, Sliding, Tumbling, WindowKind
from strandline.model.windows import describe as describe_window


@dataclass(frozen=True, slots=True)
class WindowJoin:
    """Join rows of two streams with equal keys in each window; the trigger decides when a window is joined.

    A firing joins all rows that the window has: pairs, and rows without a partner if the join emits them. Later firings
    of the window emit what is new (discarding), everything again (accumulating), or the difference, with retractions of
    rows that have found a partner (retracting).
    """

    window: WindowKind
    how: How = How.INNER
    trigger: Trigger = DEFAULT
    accumulation: Accumulation = Accumulation.DISCARDING
    lateness: Lateness = Lateness()
    condition: Expression | None = None
    """A condition on a pair, over the columns of both rows under their names in the result."""
    renamed: tuple[tuple[str, str], ...] = ()
    """Right columns that are renamed in the result, because the left stream has a column of that name."""
    columns: tuple[tuple[str, str, str | None], ...] = ()
    """The columns of the result besides the key: role of their input, name in the result, type in DDL if known."""

    def __post_init__(self) -> None:
        _check_window(self.window)
        _check_trigger(self.trigger, self.lateness)
        if self.lateness.allowed is None:
            raise InvalidStep(
                "a window join with lateness without end keeps the rows of every window forever",
                hint='allow a length of time, as in allowed_lateness="1h"',
            )

    @property
    def time(self) -> TimeDomain:
        return TimeDomain.EVENT

    @property
    def emits_pairs(self) -> bool:
        return self.how not in (How.SEMI, How.ANTI)

    def pads(self, role: str) -> bool:
        """Tell whether rows of an input without a partner are emitted, with nulls for the other side."""
        if role == LEFT:
            return self.how in (How.LEFT, How.FULL, How.ANTI)
        return self.how in (How.RIGHT, How.FULL)

    @property
    def windowed(self) -> WindowedStep:
        """Return the windowed step with the windows and firings of this join."""
        return WindowedStep((("rows", Count()),), self.window, self.trigger, self.accumulation, self.lateness)

    def firings(self, name: str, aggregate: Aggregate) -> WindowedStep:
        """Return the windowed step whose panes are the firings of this join: each after the panes that it replaces."""
        return WindowedStep(((name, aggregate),), self.window, self.trigger, Accumulation.RETRACTING, self.lateness)


def _check_window(window: WindowKind) -> None:
    if isinstance(window, Session) and isinstance(window.gap, GapColumn):
        raise InvalidStep(
            "a window join has sessions with one gap, not with a gap per element",
            hint='give the gap as a length, as in session("10m")',
        )
    if not isinstance(window, Tumbling | Sliding | Cumulating | Session):
        raise InvalidStep(
            f"a join cannot use {describe_window(window)}",
            hint="choose tumbling, sliding, cumulating or session windows; within(…) joins rows that are close in time",
        )


def _check_trigger(trigger: Trigger, lateness: Lateness) -> None:
    if _reads_values(trigger):
        raise InvalidTrigger(
            f"{describe(trigger)} reads values of a pane, and the rows of a join are not aggregated",
            hint="use after_watermark, after_count or after_processing_time",
        )
    if may_finish(trigger) and (not finishes_by_watermark_only(trigger) or lateness.allowed != ZERO):
        raise InvalidTrigger(
            f"{describe(trigger)} finishes, and the windows of the join then accept no more rows",
            hint="wrap it in repeatedly(…), or give after_watermark a late part",
        )


def _reads_values(trigger: Trigger) -> bool:
    return isinstance(trigger, When) or any(_reads_values(part) for part in parts_of(trigger))
