"""Define queries for dead letters, and the stores that they read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from strandline.errors import SetupError

if TYPE_CHECKING:
    from strandline.letters.store import LetterStore


@dataclass(frozen=True, slots=True)
class OpenedLetters:
    """The letter stores of a job, and its pipeline's sources if the pipeline is known."""

    stores: "Sequence[LetterStore]"
    sources: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LetterQuery:
    """Filters of a dead letter query."""

    search: str = ""
    reason: str = ""
    state: str = ""
    limit: int = 100


class LetterNotFound(SetupError):
    """Raised when no letter has the id."""
