"""Everyone who came in, and what became of them: the numbers by which nobody is lost in silence."""

from dataclasses import dataclass

COUNTED = ("read", "contributed", "late", "dead", "filtered")


@dataclass(frozen=True, slots=True)
class Counts:
    """Everyone who came in, and what became of them."""

    read: int = 0
    contributed: int = 0
    late: int = 0
    dead: int = 0
    filtered: int = 0

    @property
    def missing(self) -> int:
        """Zero, or something vanished."""
        return self.read - self.contributed - self.late - self.dead - self.filtered

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(getattr(self, name) + getattr(other, name) for name in COUNTED))
