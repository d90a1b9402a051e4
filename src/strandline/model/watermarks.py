"""When is it complete: how the watermark of a source is found.

A watermark T says: no more events with a time at or before T. Each partition has its own; a source's is the least of
those that are not idle; it never falls.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Self, assert_never

from strandline.errors import InvalidWatermark
from strandline.model.elements import ZERO, Duration, Length, duration


@dataclass(frozen=True, slots=True)
class Bounded:
    """The highest event time seen, less a delay, less one instant."""

    delay: Duration

    def __post_init__(self) -> None:
        _not_negative("a bounded watermark's delay", self.delay)


@dataclass(frozen=True, slots=True)
class Percentile:
    """The highest event time seen, less the lag that the share `p` of recent elements stayed within, less one instant.

    An element's lag is the highest time its partition had shown so far, less its own time; rounded up to five binary
    digits, so that lags can be counted in few buckets. The quantile is the smallest lag that at least p of the samples
    do not exceed. Samples of batches at most `horizon` of clock old count. Below `enough` samples `first` is used.
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
            raise InvalidWatermark(f"{self.enough} samples are never enough", hint="ask for one at least")


@dataclass(frozen=True, slots=True)
class FromSource:
    """What the source itself says."""


@dataclass(frozen=True, slots=True)
class ByClock:
    """Processing time: an element's time is the clock of its batch, and the watermark one instant behind it."""


Generator = Bounded | Percentile | FromSource | ByClock


@dataclass(frozen=True, slots=True)
class FutureBound:
    """How far ahead of the clock an event may move the watermark; beyond it the event counts as that far ahead.

    As a dead letter it is not taken in, and does not move the watermark at all.
    """

    ahead: Duration
    dead_letter: bool = False

    def __post_init__(self) -> None:
        _not_negative("a bound for the future", self.ahead)


class OnReturn(StrEnum):
    """What happens to the watermark when a partition, or an input, is heard again after it was idle."""

    WAIT = "wait"
    CATCH_UP = "catch_up"


@dataclass(frozen=True, slots=True)
class Watermark:
    """A generator for each partition, and how partitions are put together."""

    generator: Generator
    idle: Duration | None = None
    future: FutureBound | None = None
    on_return: OnReturn = OnReturn.WAIT

    def __post_init__(self) -> None:
        if self.idle is not None and self.idle <= ZERO:
            raise InvalidWatermark(f"a partition cannot be idle after {self.idle}", hint="give a length above zero")

    def idle_after(self, length: Length | None = None, /, **units: float) -> Self:
        """A partition silent for longer than this no longer holds the watermark back."""
        return replace(self, idle=duration(length, **units))

    def future_bound(self, ahead: Length | None = None, /, *, dead_letter: bool = False, **units: float) -> Self:
        """No event moves the watermark further than this ahead of the clock; a dead letter does not move it at all."""
        return replace(self, future=FutureBound(duration(ahead, **units), dead_letter))

    def returning(self, how: OnReturn | str) -> Self:
        """`wait` for a partition that returns (the default), or let it `catch_up` on its own."""
        try:
            return replace(self, on_return=OnReturn(how))
        except ValueError:
            raise InvalidWatermark(f"{how!r} is no way to return", hint='say "wait" or "catch_up"') from None


@dataclass(frozen=True, slots=True)
class Inputs:
    """Inputs side by side, each telling a watermark of its own: the step follows the least of the active ones."""

    names: tuple[str, ...]
    on_return: OnReturn = OnReturn.CATCH_UP

    def __post_init__(self) -> None:
        if not self.names or len(set(self.names)) < len(self.names):
            raise InvalidWatermark(f"inputs need names of their own, not {list(self.names)}", hint="name each once")


BY_HAND: Final = Inputs(("",))
"""One input without a name, whose watermark is told as a whole."""


def describe(generator: Generator) -> str:
    """The generator as it is written in Python."""
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


def bounded(delay: Length | None = None, /, **units: float) -> Watermark:
    """Elements come at most this much out of order: `bounded(seconds=10)`."""
    return Watermark(Bounded(duration(delay, **units)))


def monotone() -> Watermark:
    """Elements come in order."""
    return Watermark(Bounded(ZERO))


def percentile(
    p: float,
    *,
    horizon: Length = "10m",
    least: Length = ZERO,
    most: Length = "1h",
    first: Length = "10s",
    enough: int = 100,
) -> Watermark:
    """A delay learned from the stream: `percentile(0.99)` waits for all but one element in a hundred."""
    lengths = {"horizon": horizon, "least": least, "most": most, "first": first}
    return Watermark(Percentile(p, enough=enough, **{name: duration(given) for name, given in lengths.items()}))


def from_source() -> Watermark:
    """The source knows, and says so."""
    return Watermark(FromSource())


def by_clock() -> Watermark:
    """Processing time in place of event time."""
    return Watermark(ByClock())
