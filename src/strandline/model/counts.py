"""Count input elements by outcome, so that no element is lost unnoticed."""

from dataclasses import dataclass, replace

COUNTED = ("read", "contributed", "late", "dead", "filtered", "again", "overflow")


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of elements by outcome: `read` + `again` equals the sum of all others.

    For a job, `read` counts elements from its sources. For one step, it counts the elements that reach the step.
    """

    read: int = 0
    contributed: int = 0
    late: int = 0
    dead: int = 0
    filtered: int = 0
    again: int = 0
    """Elements processed once more: by a second step, as a pane by a later step, or as a row made by `flat_map`."""
    overflow: int = 0
    """Sums in emitted panes that are null because they have more than 64 bits or 38 digits. They are no elements."""

    @property
    def offered(self) -> int:
        """Return the number of elements that must have an outcome."""
        return self.read + self.again

    @property
    def of_step(self) -> "Counts":
        """Return the counts as one step sees them: every element that reaches the step is input."""
        return replace(self, read=self.offered, again=0)

    @property
    def missing(self) -> int:
        """Return the number of elements without an outcome: always zero, unless an element was lost."""
        return self.offered - self.contributed - self.late - self.dead - self.filtered

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(getattr(self, name) + getattr(other, name) for name in COUNTED))


@dataclass(frozen=True, slots=True)
class InputCounts:
    """Count the rows of one input of a join: a row that is not late is stored until it ends.

    `stored_before` + `accepted` equals `ended` + `stored`.
    """

    accepted: int = 0
    """Rows that arrived and were not late."""
    late: int = 0
    stored_before: int = 0
    """Rows in state before the batch."""
    ended: int = 0
    """Rows that left the state, or needed no state: they can get no further partner."""
    stored: int = 0
    """Rows in state after the batch."""
    unmatched: int | None = None
    """Rows among those that ended without a partner; None where the join does not need to know."""
    oldest_unmatched: int | None = None
    """Event time of the earliest stored row without a partner, where that is known."""

    @property
    def missing(self) -> int:
        """Return the number of rows without an outcome: always zero, unless a row was lost."""
        return self.stored_before + self.accepted - self.ended - self.stored

    @property
    def match_rate(self) -> float | None:
        """Return the share of ended rows that had a partner; None where that is unknown."""
        return None if self.unmatched is None or not self.ended else 1 - self.unmatched / self.ended

    def beside(self, other: "InputCounts") -> "InputCounts":
        """Add the counts of another key group in the same batch."""
        return InputCounts(
            self.accepted + other.accepted,
            self.late + other.late,
            self.stored_before + other.stored_before,
            self.ended + other.ended,
            self.stored + other.stored,
            _total(self.unmatched, other.unmatched),
            _least(self.oldest_unmatched, other.oldest_unmatched),
        )

    def then(self, later: "InputCounts") -> "InputCounts":
        """Add the counts of a later batch."""
        return replace(
            later,
            accepted=self.accepted + later.accepted,
            late=self.late + later.late,
            stored_before=self.stored_before,
            ended=self.ended + later.ended,
            unmatched=_total(self.unmatched, later.unmatched),
        )


def _total(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _least(one: int | None, other: int | None) -> int | None:
    return min((each for each in (one, other) if each is not None), default=None)
