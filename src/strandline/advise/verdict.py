"""Whether to stream at all: what each way of running gives, what it costs, and which is the least that is enough.

Freshness is how old an answer may be: from the moment something happens until an answer that holds it is seen.
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
"""What a micro-batch takes until its rows are in a sink, on a machine that is not busy; smaller is not promised."""
_SCHEDULED: Final = 5 * MINUTE
_FEW: Final = 5


class Way(StrEnum):
    """How to run it."""

    DAILY = "batch every day"
    HOURLY = "batch every hour"
    SCHEDULED = "stream on a schedule"
    STREAM = "stream"
    EARLY = "stream with early answers"
    NEITHER = "neither"
    OPEN = "say how fresh"


@dataclass(frozen=True, slots=True)
class Offer:
    """A way of running: how old its answers are at most, in milliseconds, and what it costs."""

    way: Way
    freshness: int
    cost: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The least that is enough, why, and what all of them would give."""

    way: Way
    why: str
    offers: tuple[Offer, ...]
    every: int | None = None
    """How often a scheduled stream should run, or an early answer should come."""
    cautions: tuple[str, ...] = ()


def offers(late: Lateness, chosen: Wait, able: Capacity) -> tuple[Offer, ...]:
    """Every way, the cheapest first."""
    settled = max(late.transit[2] if late.transit else late.waits[-1].behind, 0)
    hour, day = able.rate * 3_600 / able.kernel, able.rate * 86_400 / able.kernel
    told = late.window + chosen.told_after
    first = max(late.transit[0], 0) if late.transit else 0
    return (
        Offer(Way.DAILY, DAY + settled + int(day * 1_000), f"a job a day, {_worked(day)} of kernel"),
        Offer(Way.HOURLY, HOUR + settled + int(hour * 1_000), f"24 jobs a day, {_worked(hour)} of kernel each"),
        Offer(Way.SCHEDULED, _SCHEDULED + told + BATCH_MS, "a start each few minutes; state is kept in between"),
        Offer(Way.STREAM, told + BATCH_MS, f"a job all day, its kernel at work {able.busy:.2%} of the time"),
        Offer(Way.EARLY, first + 2 * BATCH_MS, "the same, and answers that are corrected: sinks must take corrections"),
    )


def verdict(
    late: Lateness, chosen: Wait, able: Capacity, keys: Keys | None, freshness: int | None, *, windows: float
) -> Verdict:
    """The cheapest way that is fresh enough. `windows` is how many windows the sample is long."""
    all_ways = offers(late, chosen, able)
    cautions = tuple(_cautions(late, able, keys, windows))
    if freshness is None:
        why = "how old may an answer be? Say --freshness 1h, 5m or 10s to be told which of these is enough"
        return Verdict(Way.OPEN, why, all_ways, None, cautions)
    enough = next((offer for offer in all_ways if offer.freshness <= freshness), None)
    if enough is None:
        why = (
            f"an answer {_said(freshness)} after the event is out of reach: half of the events need "
            f"{_said(late.transit[0]) if late.transit else 'an unknown time'} to come, and a micro-batch about "
            f"{_said(BATCH_MS)}"
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
    said = f"{_said(freshness)} is asked for, and it gives {_said(offer.freshness)} at worst"
    match offer.way:
        case Way.DAILY | Way.HOURLY:
            return f"a plain batch job is enough, and a stream is not worth its keep: {said}"
        case Way.SCHEDULED:
            return f"run the pipeline every few minutes with --available-now: {said}"
        case Way.STREAM:
            return (
                f"a stream is worth it: {said}; {chosen.share * 100:g} % of the elements are in the first full "
                f"answers, and {chosen.corrected:.1%} of the answers are corrected later"
            )
        case _:
            return (
                f"a stream is worth it, with early answers: a window's full answer would be later than the "
                f"{_said(freshness)} asked for"
            )


def _cautions(late: Lateness, able: Capacity, keys: Keys | None, windows: float) -> list[str]:
    found = []
    if windows < _FEW:
        found.append(
            f"the sample is only {windows:.1f} windows long: what comes late to a window is hardly in it; "
            "take more rows with --sample, or shorter windows with --window"
        )
    if able.peak > 0.2 * able.kernel:
        found.append(
            f"the busiest second has {count(able.peak)} events, more than a fifth of what the kernel takes here "
            f"({count(able.kernel)}/s): reading and Spark come on top, so plan for more cores"
        )
    if late.out_of_order == 0:
        found.append(
            "every element came in order: either the source sorts them, or the sample was sorted after it came"
        )
    if keys is not None and keys.per_window < 1.5:
        found.append("most windows hold a single element of a key: a longer window, or none at all, would tell more")
    if not all(wait.sure for wait in late.waits):
        least = next(wait.share for wait in late.waits if not wait.sure)
        found.append(f"the sample is too small to be sure of {least:.1%}: take more rows with --sample")
    return found


def _said(ms: float) -> str:
    return duration(ms / 1_000)


def _worked(seconds: float) -> str:
    return duration(seconds) if seconds >= 0.001 else "less than 1 ms"
