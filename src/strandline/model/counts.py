"""Count input elements by outcome, so that no element is lost unnoticed."""

from dataclasses import dataclass, replace

COUNTED = ("read", "contributed", "late", "dead", "filtered", "again", "overflow", "unmatched")


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
    unmatched: int = 0
    """Rows for which a lookup table had no row. They are dropped, and counted as filtered too, or padded."""

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
