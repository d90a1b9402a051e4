"""Define timestamps, durations, and the elements of a stream.

Time is whole milliseconds. The two ends of time are reserved values: sums that reach past an end stay on it, and an end
plus or minus anything is that end.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Self

from strandline.errors import InvalidTime

_LEAST: Final = -(2**63)
_GREATEST: Final = 2**63 - 1
_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LENGTH: Final = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>ms|s|m|h|d)")


def _require_whole(what: str, ms: object) -> None:
    if type(ms) is not int:
        raise InvalidTime(
            f"a {what} cannot be {ms!r}",
            detail="it is a whole number of milliseconds",
            hint=f"give an int, as in {what.capitalize()}(5_000)",
        )


@dataclass(frozen=True, order=True, slots=True)
class Duration:
    """A duration in whole milliseconds; it may be negative, as an offset."""

    ms: int

    def __post_init__(self) -> None:
        _require_whole("duration", self.ms)

    @classmethod
    def of(cls, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, ms: float = 0) -> Self:
        try:
            given = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=ms)
        except (TypeError, ValueError, OverflowError) as problem:
            raise InvalidTime("not a length of time", detail=str(problem), hint="give finite numbers") from None
        return cls.from_timedelta(given)

    @classmethod
    def from_timedelta(cls, given: timedelta) -> Self:
        ms, rest = divmod(given, timedelta(milliseconds=1))
        if rest:
            raise InvalidTime(f"{given} is not a whole number of milliseconds", hint="round it to milliseconds")
        return cls(ms)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `90s`, `1h30m`, `-5s`, `1.5s`, `250ms`."""
        body = text.strip().lower()
        sign = -1 if body.startswith("-") else 1
        body = body.lstrip("+-")
        parts = list(_LENGTH.finditer(body))
        if not parts or "".join(part.group() for part in parts) != body:
            raise InvalidTime(f"{text!r} is not a length of time", hint="write it like 250ms, 90s, 2m, 1h30m or 7d")
        ms = sum(float(part["number"]) * _UNITS[part["unit"]] for part in parts)
        if ms == float("inf"):
            raise InvalidTime("a length of time is too long", detail=text[:40], hint="give a shorter one")
        if ms != int(ms):
            raise InvalidTime(f"{text!r} is not a whole number of milliseconds", hint="round it to milliseconds")
        return cls(sign * int(ms))

    def __neg__(self) -> "Duration":
        return Duration(-self.ms)

    def __str__(self) -> str:
        rest, text = abs(self.ms), ""
        for unit in ("d", "h", "m", "s", "ms"):
            count, rest = divmod(rest, _UNITS[unit])
            text += f"{count}{unit}" if count else ""
        return ("-" if self.ms < 0 else "") + (text or "0s")


ZERO: Final = Duration(0)
INSTANT: Final = Duration(1)
"""One millisecond: the distance between neighboring timestamps."""

Length = Duration | timedelta | str
"""The types that a user may give for a duration."""


def duration(given: Length | None = None, /, **units: float) -> Duration:
    """Convert any notation of a duration: a value, `"90s"`, or `minutes=2, seconds=30`."""
    if given is not None and units:
        raise InvalidTime(f"a length of time was given twice: {given} and {units}", hint="give it once")
    match given:
        case Duration():
            return given
        case timedelta():
            return Duration.from_timedelta(given)
        case str():
            return Duration.parse(given)
        case None if units:
            return _from_units(units)
        case None:
            raise InvalidTime("a length of time is missing", hint='write minutes=2, or "2m"')
        case _:
            raise InvalidTime(f"{given!r} is not a length of time", hint='write minutes=2, or "2m"')


def _from_units(units: dict[str, float]) -> Duration:
    names = {"days", "hours", "minutes", "seconds", "ms"}
    unknown = sorted(set(units) - names)
    if unknown:
        raise InvalidTime(f"no such unit of time: {', '.join(unknown)}", hint=f"use {', '.join(sorted(names))}")
    return Duration.of(**units)


@dataclass(frozen=True, order=True, slots=True)
class Timestamp:
    """A timestamp: milliseconds since the epoch, or one of the two ends of time."""

    ms: int

    def __post_init__(self) -> None:
        _require_whole("timestamp", self.ms)

    @classmethod
    def from_datetime(cls, at: datetime) -> Self:
        """Convert a datetime, rounded down to the millisecond; a datetime without a zone is UTC."""
        since = (at if at.tzinfo else at.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
        return cls(since // timedelta(milliseconds=1))

    @property
    def is_end(self) -> bool:
        """Return whether this is one of the two reserved values, the beginning and the end of time."""
        return self.ms in (_LEAST, _GREATEST)

    def __add__(self, by: Duration) -> "Timestamp":
        return self._moved(by.ms)

    def __sub__(self, by: Duration) -> "Timestamp":
        return self._moved(-by.ms)

    def _moved(self, ms: int) -> "Timestamp":
        """Add milliseconds; an end stays an end, and no sum reaches past one."""
        if self.ms in (_LEAST, _GREATEST):
            return self
        return Timestamp(min(max(self.ms + ms, _LEAST), _GREATEST))

    def since(self, earlier: "Timestamp") -> Duration:
        """Return the duration from `earlier` to this; neither may be an end of time."""
        return Duration(self.ms - earlier.ms)

    def __str__(self) -> str:
        if self.is_end:
            return "-inf" if self.ms == _LEAST else "+inf"
        return str(Duration(self.ms))


EPOCH: Final = Timestamp(0)
BEGINNING: Final = Timestamp(_LEAST)
END: Final = Timestamp(_GREATEST)

_ENDS: Final = {"-inf": BEGINNING, "+inf": END, "inf": END}


def instant(given: Any) -> Timestamp:
    """Convert any notation of a timestamp: a value, milliseconds, `"26s"` after the epoch, an ISO date."""
    match given:
        case Timestamp():
            return given
        case Duration(ms):
            return Timestamp(ms)
        case datetime():
            return Timestamp.from_datetime(given)
        case int() if not isinstance(given, bool) and _LEAST <= given <= _GREATEST:
            return Timestamp(given)
        case str():
            return _read_instant(given.strip())
    raise InvalidTime(f"{given!r} is not a time", hint="write 26s, 2024-05-01T12:00:00Z, or whole milliseconds")


def _read_instant(text: str) -> Timestamp:
    if text in _ENDS:
        return _ENDS[text]
    try:
        return Timestamp(Duration.parse(text).ms)
    except InvalidTime:
        pass
    try:
        return Timestamp.from_datetime(datetime.fromisoformat(text))
    except ValueError:
        raise InvalidTime(f"{text!r} is not a time", hint="write 26s, -5s or 2024-05-01T12:00:00Z") from None


def zoned(at: datetime, name: str) -> Timestamp:
    """Convert a datetime that an argument gives; raise if it has no zone, since it could mean any."""
    if at.tzinfo is None:
        raise InvalidTime(
            f"{name}={at.isoformat()} has no time zone",
            detail="the same clock time is another moment in every zone",
            hint="write datetime(…, tzinfo=UTC), with UTC from datetime",
        )
    return Timestamp.from_datetime(at)


class TimeDomain(StrEnum):
    """The clock that gives an element its time."""

    EVENT = "event"
    PROCESSING = "processing"


@dataclass(frozen=True, slots=True)
class Element:
    """One row of a stream: its event time, key, columns, and position in its source.

    An element with a missing or invalid time has the beginning of time, a reserved value: it becomes a dead letter.
    """

    at: Timestamp
    key: Any
    columns: Mapping[str, Any] = field(default_factory=dict)
    partition: str = ""
    offset: int = 0
    retraction: bool = False
    """Whether it retracts an equal earlier element. Only panes of another step, used as elements, may retract."""
    input: str = ""
    """The input that it came from, where there are several. Input, partition and offset identify it."""
