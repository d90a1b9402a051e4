"""Everyone who came in, and what became of them: the numbers by which nobody is lost in silence."""

from dataclasses import dataclass, replace

COUNTED = ("read", "contributed", "late", "dead", "filtered", "again")


@dataclass(frozen=True, slots=True)
class Counts:
    """Everyone who came in, and what became of them: `read` + `again` are the others together.

    Of a job, `read` is what came from its sources. Of one step, it is what came to that step.
    """

    read: int = 0
    contributed: int = 0
    late: int = 0
    dead: int = 0
    filtered: int = 0
    again: int = 0
    """Offered once more: to a step beside the first, as a pane to a later step, or made of one by `flat_map`."""

    @property
    def offered(self) -> int:
        """Everyone of whom something must have become."""
        return self.read + self.again

    @property
    def of_step(self) -> "Counts":
        """The same as one step sees it: whoever comes to it comes in."""
        return replace(self, read=self.offered, again=0)

    @property
    def missing(self) -> int:
        """Zero, or something vanished."""
        return self.offered - self.contributed - self.late - self.dead - self.filtered

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(getattr(self, name) + getattr(other, name) for name in COUNTED))
