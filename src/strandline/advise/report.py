"""Compute the advice for a sample."""

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
class Requirements:
    """Requirements in milliseconds; None if not given."""

    freshness: int | None = None
    window: int | None = None

    def __post_init__(self) -> None:
        for name, given in (("freshness", self.freshness), ("window", self.window)):
            if given is not None and given <= 0:
                raise InvalidStep(f"{given} ms is not a valid {name}", hint="give a duration above zero, like 5m")


@dataclass(frozen=True, slots=True)
class Settings:
    """Recommended pipeline settings, in milliseconds."""

    window: int
    delay: int
    lateness: int
    idle_after: int | None
    future: int | None
    early: int | None
    session: int | None


@dataclass(frozen=True, slots=True)
class CurrentSettings:
    """The delay that a pipeline has already, in milliseconds, and the share of elements it is enough for."""

    delay: int
    in_time: float


@dataclass(frozen=True, slots=True)
class Advice:
    """All measurements of a sample, and the recommendation."""

    sample: Sample
    wanted: Requirements
    late: Lateness
    chosen: Wait
    clocks: Clocks
    partitions: Partitions
    keys: Keys | None
    rates: Capacity
    verdict: Verdict
    settings: Settings
    current: CurrentSettings | None = None


def advise(
    sample: Sample, wanted: Requirements, *, now: int, cores: int, known: tuple[str, ...] = (), delay: int | None = None
) -> Advice:
    """Measure a sample and recommend settings. `now` is the time of sampling, `known` names all partitions.

    `delay` is the current delay of a pipeline that reads this source already.
    """
    rows = with_ahead(sample, now)
    window = wanted.window or _window(quantile(measured(rows, MINUTE)["behind"], 0.99), wanted.freshness)
    late = lateness(rows, window)
    chosen = _chosen(late, wanted.freshness)
    clock, places = clocks(rows, sample), partitions(rows, known)
    groups = groups_for(cores)
    found = keys(rows, window, groups)
    rates = capacity(rows, window, chosen.delay, groups)
    sane = rows.filter(~pl.col(AHEAD))[PACE]
    long: Any = sane.max() - sane.min()  # type: ignore[operator]
    judged = verdict(late, chosen, rates, found, wanted.freshness, windows=long / window)
    settings = Settings(
        window,
        round_up(chosen.delay),
        round_up(max(late.longest - round_up(chosen.delay), 0)),
        places.idle_after,
        round_up(max(2 * clock.usual_future, MINUTE)),
        judged.every if judged.way is Way.EARLY else None,
        None if found is None or found.bursts is None else round_up(found.bursts),
    )
    current = None if delay is None else CurrentSettings(delay, in_time(rows, window, delay))
    return Advice(sample, wanted, late, chosen, clock, places, found, rates, judged, settings, current)


def _window(behind: int, freshness: int | None) -> int:
    """Choose a minute; longer if disorder is large, so that a window does not mostly wait; shorter for freshness."""
    usual = round_up(max(4 * behind, MINUTE))
    return usual if freshness is None else max(min(usual, round_down(freshness / 2)), _SHORTEST)


def _chosen(late: Lateness, freshness: int | None) -> Wait:
    """Choose the most complete wait that meets the freshness; the 99 % wait if no freshness is required."""
    if freshness is None:
        return late.waits[1]
    fitting = [wait for wait in late.waits if late.window + wait.told_after <= freshness and wait.sure]
    return fitting[-1] if fitting else late.waits[0]
