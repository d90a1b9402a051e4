"""All that a sample says, in one value; and how it is found, on one page."""

from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from strandline.advise.capacity import Capacity, capacity
from strandline.advise.clocks import AHEAD, PACE, Clocks, clocks, with_ahead
from strandline.advise.keys import Keys, keys
from strandline.advise.lateness import Lateness, Wait, in_time, lateness, measured, quantile
from strandline.advise.partitions import Partitions, partitions
from strandline.advise.round_durations import round_down, round_up
from strandline.advise.sample import Sample
from strandline.advise.verdict import MINUTE, Verdict, Way, verdict
from strandline.errors import InvalidStep
from strandline.plan.compile import groups_for

_SHORTEST: Final = 1_000


@dataclass(frozen=True, slots=True)
class Wishes:
    """What is wanted, in milliseconds; None where it was not said."""

    freshness: int | None = None
    window: int | None = None

    def __post_init__(self) -> None:
        for name, given in (("freshness", self.freshness), ("window", self.window)):
            if given is not None and given <= 0:
                raise InvalidStep(f"a {name} of {given} ms is none", hint="give a length above zero, like 5m")


@dataclass(frozen=True, slots=True)
class Settings:
    """What a pipeline over these data should say, in milliseconds."""

    window: int
    delay: int
    lateness: int
    idle_after: int | None
    future: int | None
    early: int | None
    session: int | None


@dataclass(frozen=True, slots=True)
class Yours:
    """What a pipeline says already: its delay, in milliseconds, and the share of elements that it is enough for."""

    delay: int
    in_time: float


@dataclass(frozen=True, slots=True)
class Advice:
    """A sample, looked at from every side, and what follows."""

    sample: Sample
    wishes: Wishes
    late: Lateness
    chosen: Wait
    clocks: Clocks
    partitions: Partitions
    keys: Keys | None
    able: Capacity
    verdict: Verdict
    settings: Settings
    yours: Yours | None = None


def advise(
    sample: Sample, wishes: Wishes, *, now: int, cores: int, known: tuple[str, ...] = (), delay: int | None = None
) -> Advice:
    """What a sample says. `now` is the time it was looked at, `known` the partitions that there are.

    `delay` is that of a pipeline which reads it already.
    """
    rows = with_ahead(sample, now)
    window = wishes.window or _window(quantile(measured(rows, MINUTE)["behind"], 0.99), wishes.freshness)
    late = lateness(rows, window)
    chosen = _chosen(late, wishes.freshness)
    clock, places = clocks(rows, sample), partitions(rows, known)
    groups = groups_for(cores)
    found = keys(rows, window, groups)
    able = capacity(rows, window, chosen.delay, groups)
    sane = rows.filter(~pl.col(AHEAD))[PACE]
    long: Any = sane.max() - sane.min()  # type: ignore[operator]
    judged = verdict(late, chosen, able, found, wishes.freshness, windows=long / window)
    settings = Settings(
        window,
        round_up(chosen.delay),
        round_up(max(late.longest - round_up(chosen.delay), 0)),
        places.idle_after,
        round_up(max(2 * clock.usual_future, MINUTE)),
        judged.every if judged.way is Way.EARLY else None,
        None if found is None or found.bursts is None else round_up(found.bursts),
    )
    yours = None if delay is None else Yours(delay, in_time(rows, window, delay))
    return Advice(sample, wishes, late, chosen, clock, places, found, able, judged, settings, yours)


def _window(behind: int, freshness: int | None) -> int:
    """A minute, unless disorder is so large that most of a window's life would be waiting, or it must be fresher."""
    usual = round_up(max(4 * behind, MINUTE))
    return usual if freshness is None else max(min(usual, round_down(freshness / 2)), _SHORTEST)


def _chosen(late: Lateness, freshness: int | None) -> Wait:
    """The most complete of the waits that fits into the freshness; 99 % where nothing was asked for."""
    if freshness is None:
        return late.waits[1]
    fitting = [wait for wait in late.waits if late.window + wait.told_after <= freshness and wait.sure]
    return fitting[-1] if fitting else late.waits[0]
