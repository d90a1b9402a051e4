"""Recommend whether to stream: the freshness and cost of each way of running, and the cheapest that is fresh enough.

Freshness is the maximum age of a result: from an event until a result that includes it is visible.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from strandline.advise.capacity import Capacity
from strandline.advise.keys import Keys
from strandline.advise.lateness import Lateness, Wait
from strandline.advise.round_durations import round_down, round_up
from strandline.observe.number_format import count, duration

HOUR, DAY, MINUTE = 3_600_000, 86_400_000, 60_000
BATCH_MS: Final = 2_000
"""Time of a micro-batch until its rows are in a sink, on a machine that is not busy; nothing below it is promised."""
_SCHEDULED: Final = 5 * MINUTE
_FEW: Final = 5


class Way(StrEnum):
    """A way of running the pipeline."""

    DAILY = "batch every day"
    HOURLY = "batch every hour"
    SCHEDULED = "stream on a schedule"
    STREAM = "stream"
    EARLY = "stream with early results"
    NEITHER = "neither"
    OPEN = "no freshness given"


@dataclass(frozen=True, slots=True)
class Offer:
    """A way of running: the maximum age of its results, in milliseconds, and its cost."""

    way: Way
    freshness: int
    cost: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The cheapest way that is fresh enough, the reason, and all other ways."""

    way: Way
    why: str
    offers: tuple[Offer, ...]
    every: int | None = None
    """The interval of a scheduled stream, or of early results."""
    cautions: tuple[str, ...] = ()


def offers(late: Lateness, chosen: Wait, rates: Capacity) -> tuple[Offer, ...]:
    """Return every way of running, the cheapest first."""
    settled = max(late.transit[2] if late.transit else late.waits[-1].behind, 0)
    hour, day = rates.rate * 3_600 / rates.kernel, rates.rate * 86_400 / rates.kernel
    complete = late.window + chosen.told_after
    first = max(late.transit[0], 0) if late.transit else 0
    return (
        Offer(Way.DAILY, DAY + settled + int(day * 1_000), f"one job a day, {_kernel_time(day)} in the kernel"),
        Offer(
            Way.HOURLY, HOUR + settled + int(hour * 1_000), f"24 jobs a day, {_kernel_time(hour)} in the kernel each"
        ),
        Offer(Way.SCHEDULED, _SCHEDULED + complete + BATCH_MS, "a start every few minutes; state is kept in between"),
        Offer(Way.STREAM, complete + BATCH_MS, f"a job all day, its kernel busy {rates.busy:.2%} of the time"),
        Offer(Way.EARLY, first + 2 * BATCH_MS, "the same, with corrected results: sinks must accept corrections"),
    )


def verdict(
    late: Lateness, chosen: Wait, rates: Capacity, keys: Keys | None, freshness: int | None, *, windows: float
) -> Verdict:
    """Choose the cheapest way that is fresh enough. `windows` is the length of the sample in windows."""
    all_ways = offers(late, chosen, rates)
    cautions = tuple(_cautions(late, rates, keys, windows))
    if freshness is None:
        why = "give the maximum age of a result with --freshness 1h, 5m or 10s to get a recommendation"
        return Verdict(Way.OPEN, why, all_ways, None, cautions)
    enough = next((offer for offer in all_ways if offer.freshness <= freshness), None)
    if enough is None:
        transit = _duration(late.transit[0]) if late.transit else "an unknown time"
        why = (
            f"a result {_duration(freshness)} after the event is not possible: half of the events need {transit} to "
            f"arrive, and a micro-batch takes about {_duration(BATCH_MS)}"
        )
        return Verdict(Way.NEITHER, why, all_ways, None, cautions)
    return Verdict(enough.way, _why(enough, freshness, chosen), all_ways, _every(enough, freshness, late), cautions)


def _every(offer: Offer, freshness: int, late: Lateness) -> int | None:
    if offer.way is Way.SCHEDULED:
        return round_down(_SCHEDULED + freshness - offer.freshness)
    if offer.way is Way.EARLY:
        first = max(late.transit[0], 0) if late.transit else 0
        return min(round_down(max(freshness - first - BATCH_MS, BATCH_MS)), round_up(late.window))
    return None


def _why(offer: Offer, freshness: int, chosen: Wait) -> str:
    reason = f"{_duration(freshness)} is required, and it gives at most {_duration(offer.freshness)}"
    match offer.way:
        case Way.DAILY | Way.HOURLY:
            return f"a plain batch job is enough, a stream is not worth its cost: {reason}"
        case Way.SCHEDULED:
            return f"run the pipeline every few minutes with --available-now: {reason}"
        case Way.STREAM:
            return (
                f"a stream is worth it: {reason}; {chosen.share * 100:g} % of the elements are in the on-time "
                f"results, and {chosen.corrected:.1%} of the results are corrected later"
            )
        case _:
            return (
                f"a stream with early results is worth it: a window's complete result would be later than the "
                f"required {_duration(freshness)}"
            )


def _cautions(late: Lateness, rates: Capacity, keys: Keys | None, windows: float) -> list[str]:
    found = []
    if windows < _FEW:
        found.append(
            f"the sample is only {windows:.1f} windows long, so it holds few of the elements that are late; "
            "take more rows with --sample, or shorter windows with --window"
        )
    if rates.peak > 0.2 * rates.kernel:
        found.append(
            f"the busiest second has {count(rates.peak)} events, more than a fifth of the kernel's rate here "
            f"({count(rates.kernel)}/s): reading and Spark are not included, so plan for more cores"
        )
    if late.out_of_order == 0:
        found.append(
            "every element arrived in order: either the source sorts them, or the sample was sorted afterwards"
        )
    if keys is not None and keys.per_window < 1.5:
        found.append("most windows hold a single element per key: a longer window, or none, would be more useful")
    if not all(wait.sure for wait in late.waits):
        least = next(wait.share for wait in late.waits if not wait.sure)
        found.append(f"the sample is too small to be sure about {least:.1%}: take more rows with --sample")
    return found


def _duration(ms: float) -> str:
    return duration(ms / 1_000)


def _kernel_time(seconds: float) -> str:
    return duration(seconds) if seconds >= 0.001 else "less than 1 ms"
