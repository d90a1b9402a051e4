"""Keep the first or the last element of each key, within a span of event time."""

from dataclasses import dataclass
from enum import StrEnum

from strandline.errors import InvalidStep
from strandline.model.elements import ZERO, Duration, TimeDomain


class Keep(StrEnum):
    """Which of several elements with one key is kept."""

    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class Deduplicate:
    """Emit one element of each key and span of event time.

    `first`: an element is a duplicate if an emitted element of its key is less than `within` away in event time.
    `last`: a newer element less than `within` after the last one replaces it: a retraction, then the new element. An
    older element is a duplicate.
    Elements behind the watermark by `lateness` or more are late: whether they are duplicates is no longer known.
    """

    keep: Keep = Keep.FIRST
    within: Duration | None = None
    """None keeps every key forever."""
    lateness: Duration = ZERO
    time: TimeDomain = TimeDomain.EVENT

    def __post_init__(self) -> None:
        if self.within is not None and self.within <= ZERO:
            raise InvalidStep(f"duplicates within {self.within} cannot exist", hint="give a length above zero")
        if self.lateness < ZERO:
            raise InvalidStep(f"an allowed lateness of {self.lateness} is negative", hint="allow zero or more")
