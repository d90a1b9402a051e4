"""Define watermark strategies: how the watermark of a source is computed.

A watermark T means: no more events with a time at or before T. Each partition has its own; the watermark of a source is
the least of the partitions that are not idle. It never falls.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Self, assert_never

from strandline.errors import InvalidWatermark
from strandline.model.arguments import checked, checked_methods
from strandline.model.elements import ZERO, Duration, Length, duration


@dataclass(frozen=True, slots=True)
class Bounded:
    """The highest event time seen, minus a delay, minus one millisecond."""

    delay: Duration

    def __post_init__(self) -> None:
        _not_negative("a bounded watermark's delay", self.delay)


@dataclass(frozen=True, slots=True)
class Percentile:
    """The highest event time seen, minus the lag that the share `p` of recent elements stayed within, minus 1 ms.

    An element's lag is the highest time of its partition so far, minus its own time, rounded up to five binary digits,
    so that lags can be counted in few buckets. The quantile is the smallest lag that at least p of the samples do not
    exceed. Samples count if their batch is at most `horizon` of processing time old. Below `enough` samples, `first`
    is used.
    """

    p: float
    horizon: Duration = Duration(600_000)
    least: Duration = ZERO
    most: Duration = Duration(3_600_000)
    first: Duration = Duration(10_000)
    enough: int = 100

    def __post_init__(self) -> None:
        if not 0 < self.p <= 1:
            raise InvalidWatermark(f"{self.p} is not a share of the elements", hint="give a p above 0, at most 1")
        if self.horizon <= ZERO:
            raise InvalidWatermark(f"a horizon of {self.horizon} holds no samples", hint="give one above zero")
        for name, length in (("least", self.least), ("most", self.most), ("first", self.first)):
            _not_negative(f"a percentile watermark's {name} delay", length)
        if self.least > self.most:
            raise InvalidWatermark(f"the least delay, {self.least}, is above the most, {self.most}", hint="swap them")
        if self.enough < 1:
            raise InvalidWatermark(f"{self.enough} samples are never enough", hint="require one at least")


@dataclass(frozen=True, slots=True)
class FromSource:
    """The watermark that the source itself reports."""


@dataclass(frozen=True, slots=True)
class ByClock:
    """Processing time: an element's time is the clock of its batch, and the watermark one millisecond behind it."""


Generator = Bounded | Percentile | FromSource | ByClock


@dataclass(frozen=True, slots=True)
class FutureBound:
    """How far ahead of the clock an event may move the watermark; beyond that the event counts as that far ahead.

    With `dead_letter` such an event is dead-lettered, and does not move the watermark at all.
    """

    ahead: Duration
    dead_letter: bool = False

    def __post_init__(self) -> None:
        _not_negative("a bound for the future", self.ahead)


class OnReturn(StrEnum):
    """How the watermark treats a partition or input that becomes active after it was idle."""

    WAIT = "wait"
    CATCH_UP = "catch_up"


@dataclass(frozen=True, slots=True)
@checked_methods
class Watermark:
    """A generator for each partition, and how partitions are combined."""

    generator: Generator
    idle: Duration | None = None
    future: FutureBound | None = None
    on_return: OnReturn = OnReturn.WAIT

    def __post_init__(self) -> None:
        if self.idle is not None and self.idle <= ZERO:
            raise InvalidWatermark(f"a partition cannot be idle after {self.idle}", hint="give a length above zero")

    def idle_after(self, length: Length | None = None, /, **units: float) -> Self:
        """Let a partition without elements for longer than this no longer hold the watermark back."""
        return replace(self, idle=duration(length, **units))

    def future_bound(self, ahead: Length | None = None, /, *, dead_letter: bool = False, **units: float) -> Self:
        """Limit how far ahead of the clock an event moves the watermark; a dead letter does not move it at all."""
        return replace(self, future=FutureBound(duration(ahead, **units), dead_letter))

    def returning(self, how: OnReturn | str) -> Self:
        """Choose `wait` (the default) for a returning partition, or let it `catch_up` by itself."""
        return replace(self, on_return=OnReturn(how))


@dataclass(frozen=True, slots=True)
class Inputs:
    """Named inputs, each with its own watermark: the step follows the least of the active ones."""

    names: tuple[str, ...]
    on_return: OnReturn = OnReturn.CATCH_UP

    def __post_init__(self) -> None:
        if not self.names or len(set(self.names)) < len(self.names):
            raise InvalidWatermark(f"inputs need distinct names, not {list(self.names)}", hint="name each once")


BY_HAND: Final = Inputs(("",))
"""One unnamed input, whose watermark is set directly."""


def describe(generator: Generator) -> str:
    """Return the generator as Python code."""
    match generator:
        case Bounded(delay):
            return f"bounded({delay})"
        case Percentile(p):
            return f"percentile({p})"
        case FromSource():
            return "from_source()"
        case ByClock():
            return "by_clock()"
    assert_never(generator)


def _not_negative(what: str, length: Duration) -> None:
    if length < ZERO:
        raise InvalidWatermark(f"{what} is {length}", hint="give zero or more")


@checked
def bounded(delay: Length | None = None, /, **units: float) -> Watermark:
    """Allow elements to be out of order by at most this much: `bounded(seconds=10)`."""
    return Watermark(Bounded(duration(delay, **units)))


@checked
def monotone() -> Watermark:
    """Expect elements in order."""
    return Watermark(Bounded(ZERO))


@checked
def percentile(
    p: float,
    *,
    horizon: Length = "10m",
    least: Length = ZERO,
    most: Length = "1h",
    first: Length = "10s",
    enough: int = 100,
) -> Watermark:
    """Learn the delay from the stream: `percentile(0.99)` waits for all but one element in a hundred."""
    lengths = {"horizon": horizon, "least": least, "most": most, "first": first}
    return Watermark(Percentile(p, enough=enough, **{name: duration(given) for name, given in lengths.items()}))


@checked
def from_source() -> Watermark:
    """Use the watermark that the source reports."""
    return Watermark(FromSource())


@checked
def by_clock() -> Watermark:
    """Use processing time in place of event time."""
    return Watermark(ByClock())
