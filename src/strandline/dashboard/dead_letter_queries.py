"""What is asked about the dead letters of a job, and where they are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from strandline.errors import SetupError

if TYPE_CHECKING:
    from strandline.letters.store import LetterStore


@dataclass(frozen=True, slots=True)
class Opened:
    """Where the letters of a job are; and, of a pipeline, the sources that take records back."""

    stores: "Sequence[LetterStore]"
    sources: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Asked:
    """Which letters are meant."""

    search: str = ""
    reason: str = ""
    state: str = ""
    limit: int = 100


class LetterGone(SetupError):
    """An id that no letter has."""
