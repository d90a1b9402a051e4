"""Judge the golden metrics: for each whether it is fine, and a sentence that says why.

Pure functions of the last batches, oldest first. The few limits are in `Limits`; a number that can be judged by its own
history (is it growing?) needs none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final

from strandline.observe.metrics.metrics import STAGES, BatchMetrics
from strandline.observe.number_format import bytes_of, count, duration

History = Sequence[BatchMetrics]


class Level(StrEnum):
    """Severity of a verdict."""

    OK = "ok"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A golden number: its displayed value, its level, and why."""

    number: str
    level: Level
    value: str
    why: str


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for numbers that cannot be judged by their own history."""

    late_share: float = 0.01
    dead_share: float = 0.01
    latency_seconds: float = 300.0
    skew: float = 3.0
    """How many times the mean the fullest key group may get."""
    hot_share: float = 0.3
    growing: int = 8
    """The number of points over which a number must grow to count as growing."""


DEFAULT: Final = Limits()


def verdicts(history: History, limits: Limits = DEFAULT) -> list[Verdict]:
    """A verdict for every golden number of the last batches, in the order to look at them; empty without a batch."""
    return [judge(history, limits) for judge in _JUDGES] if history else []


def worst(found: Sequence[Verdict]) -> Level:
    """The worst level of all verdicts."""
    levels = {verdict.level for verdict in found}
    return Level.BAD if Level.BAD in levels else Level.WARN if Level.WARN in levels else Level.OK


def lag(history: History, limits: Limits) -> Verdict:
    last = history[-1]
    if last.lag_records is None:
        return Verdict("lag", Level.OK, "–", "its sources do not report how much is left")
    seconds = "" if last.lag_seconds is None else f", {duration(last.lag_seconds)}"
    value = f"{count(last.lag_records)} records{seconds}"
    known = [float(each.lag_records) for each in history if each.lag_records is not None]
    if grows(known, limits.growing) and last.lag_records > last.counts.read and not last.ended:
        return Verdict("lag", Level.BAD, value, f"it has grown over the last {limits.growing} batches")
    if last.lag_records > 10 * max(last.counts.read, 1) and not last.ended:
        return Verdict("lag", Level.WARN, value, "more is left than ten batches read; it does not grow")
    if last.lag_records and last.ended:
        return Verdict("lag", Level.WARN, value, "the job was drained and left them unread")
    return Verdict("lag", Level.OK, value, "it does not grow" if last.lag_records else "all input is read")


def throughput(history: History, limits: Limits) -> Verdict:  # noqa: ARG001 - all judges have the same signature
    seconds = sum(each.seconds for each in history[-30:]) or 1.0
    read = sum(each.counts.read for each in history[-30:]) / seconds
    out = sum(each.emitted for each in history[-30:]) / seconds
    value = f"{count(read)}/s in, {count(out)}/s out"
    missing = sum(each.counts.missing for each in history)
    if missing:
        return Verdict("throughput", Level.BAD, value, f"{missing} elements are unaccounted for")
    return Verdict("throughput", Level.OK, value, "every element is accounted for")


def latency(history: History, limits: Limits) -> Verdict:
    last = next((each for each in reversed(history) if each.latency), None)
    if last is None:
        return Verdict("latency", Level.OK, "–", "no rows were emitted yet")
    timing = "on_time" if "on_time" in last.latency else next(iter(last.latency))
    p50, p99 = last.latency_seconds(0.5, timing) or 0.0, last.latency_seconds(0.99, timing) or 0.0
    value = f"{duration(p50)} (p50), {duration(p99)} (p99), {timing.replace('_', ' ')}"
    if p99 > limits.latency_seconds:
        why = f"one row in a hundred is visible later than {duration(limits.latency_seconds)} after its event time"
        return Verdict("latency", Level.WARN, value, why)
    return Verdict("latency", Level.OK, value, "from event time to visible in the sink")


def commit(history: History, limits: Limits) -> Verdict:  # noqa: ARG001
    last = history[-1]
    each = (last.stages.get("deliver", 0.0) + last.stages.get("commit", 0.0)) / last.batches
    value = f"{duration(each)} a batch"
    if last.took and each > 0.5 * last.took and each > 1.0:
        return Verdict("commit", Level.WARN, value, "more than half of a batch's time goes into sinks and commits")
    return Verdict("commit", Level.OK, value, "the time of sinks and commits")


def state(history: History, limits: Limits) -> Verdict:
    last = history[-1]
    size = "" if last.state_bytes is None else f", {bytes_of(last.state_bytes)}"
    value = f"{count(last.state_rows)} rows{size}"
    known = [float(each.state_rows) for each in history]
    # A filling window grows too, so the state must have doubled, and over a long time.
    if grows(known, 4 * limits.growing) and known[-1] > 2 * known[-4 * limits.growing]:
        return Verdict("state", Level.WARN, value, "it has grown for a long time and never shrunk")
    return Verdict("state", Level.OK, value, "windows, or the slices that they share")


def watermark(history: History, limits: Limits) -> Verdict:
    last = history[-1]
    if last.ended:
        why = "the job was drained" if last.lag_records else "the stream has ended"
        return Verdict("watermark", Level.OK, "at the end", f"{why}, every window is closed")
    holder = f"; {last.held_by} holds it back" if last.held_by else ""
    if last.watermark is None:
        level = Level.WARN if len(history) >= limits.growing and any(each.counts.read for each in history) else Level.OK
        return Verdict("watermark", level, "none yet", f"not every partition has sent records{holder}")
    value = f"{duration(last.behind_seconds or 0.0)} behind the clock"
    recent = history[-limits.growing :]
    if is_stuck(recent, limits.growing):
        silent = next((each for each in last.partitions if each.name == last.held_by), None)
        since = "" if silent is None or silent.heard is None else (
            f", silent for {duration((last.clock - silent.heard) / 1000)}"
        )  # fmt: skip
        return Verdict("watermark", Level.BAD, value, f"it has not moved for {len(recent)} batches{holder}{since}")
    return Verdict("watermark", Level.OK, value, f"it moves{holder}")


def lateness(history: History, limits: Limits) -> Verdict:
    read = sum(each.counts.offered for each in history)
    late = sum(each.counts.late for each in history)
    share = late / read if read else 0.0
    value = f"{share:.2%}"
    if share > limits.late_share:
        why = f"{count(late)} of {count(read)} were late; allow more lateness, or a longer delay"
        return Verdict("lateness", Level.WARN, value, why)
    return Verdict("lateness", Level.OK, value, f"{count(late)} of {count(read)} were late")


def dead_letters(history: History, limits: Limits) -> Verdict:
    last = history[-1]
    read, dead = sum(each.counts.read for each in history), sum(each.counts.dead for each in history)
    share = dead / read if read else 0.0
    value = f"{share:.2%}"
    if last.budget is not None and last.budget > 0.5:
        level = Level.BAD if last.budget > 0.9 else Level.WARN
        return Verdict("dead letters", level, value, f"{last.budget:.0%} of the failure budget is spent")
    if share > limits.dead_share:
        return Verdict("dead letters", Level.WARN, value, f"{count(dead)} of {count(read)}: {_most_frequent(history)}")
    return Verdict("dead letters", Level.OK, value, f"{count(dead)} of {count(read)}")


def overflow(history: History, limits: Limits) -> Verdict:  # noqa: ARG001
    many = sum(each.counts.overflow for each in history)
    if not many:
        return Verdict("overflow", Level.OK, "0", "every sum fits")
    why = "sums in panes are null: they have more than 64 bits or 38 digits; sum a double, or cast the column"
    return Verdict("overflow", Level.WARN, count(many), why)


def skew(history: History, limits: Limits) -> Verdict:
    shares = [
        (max(step.groups) * len(step.groups) / sum(step.groups), step) for step in history[-1].steps if sum(step.groups)
    ]
    found, step = max(shares, key=lambda each: each[0], default=(1.0, None))
    value = f"{found:.1f} × the mean"
    hot = history[-1].hot[0] if history[-1].hot else None
    named = f"; the hottest key is {hot.key} with {hot.share:.0%}" if hot else ""
    if step is not None and found > limits.skew and step.counts.read > 1_000:
        return Verdict("skew", Level.WARN, value, f"one key group of {step.name} gets most{named}{_SPREAD}")
    if hot is not None and hot.share > limits.hot_share and len(history[-1].hot) > 3:
        return Verdict("skew", Level.WARN, value, f"one key gets much of the stream{named}{_SPREAD}")
    return Verdict("skew", Level.OK, value, f"key groups get about the same{named}")


def backpressure(history: History, limits: Limits) -> Verdict:
    """Judge which stage limits the job: the one that takes most time, if the job is busy all the time."""
    recent = history[-30:]
    spent = {stage: sum(each.stages.get(stage, 0.0) for each in recent) for stage in STAGES}
    total, seconds = sum(spent.values()), sum(each.seconds for each in recent)
    if not total:
        return Verdict("backpressure", Level.OK, "–", "no batch was timed yet")
    stage = max(spent, key=lambda name: spent[name])
    busy = min(total / seconds, 1.0) if seconds else 0.0
    value = f"{busy:.0%} busy"
    behind = [float(each.lag_records) for each in recent if each.lag_records is not None]
    limiting = f"{stage} takes {spent[stage] / total:.0%} of it: {_REMEDIES[stage]}"
    if busy > 0.9 and grows(behind, limits.growing):
        return Verdict("backpressure", Level.BAD, value, f"it cannot keep up; {limiting}")
    if busy > 0.9 and behind and behind[-1] > recent[-1].counts.read:
        return Verdict("backpressure", Level.WARN, value, f"it just keeps up; {limiting}")
    return Verdict("backpressure", Level.OK, value, f"{stage} takes most of it")


_REMEDIES: Final = {
    "source": "read less per batch, or check the broker",
    "plan": "batches are small; start them less often, with every=…",
    "read": "more partitions, or a faster source",
    "prepare": "more cores, or cheaper functions and formats",
    "shuffle": "more cores, or fewer and larger batches",
    "state": "a faster disk for the state, or larger batches",
    "step": "more cores and key groups, or fewer early panes",
    "deliver": "a faster sink, or fewer panes",
    "commit": "a faster disk for the checkpoint, or larger batches",
}

_SPREAD: Final = "; where elements are kept one by one, hot_keys(salt=…) spreads them"

_JUDGES: Final[tuple[Callable[[History, Limits], Verdict], ...]] = (
    lag, throughput, latency, commit, state, watermark, lateness, dead_letters, overflow, skew, backpressure,
)  # fmt: skip


def grows(values: Sequence[float], over: int) -> bool:
    """Whether the last values rise: none of them falls by much, and the last is well above the first."""
    recent = values[-over:]
    if len(recent) < over or recent[-1] <= 1.2 * recent[0] or recent[-1] <= recent[0]:
        return False
    falls = sum(later < earlier for earlier, later in pairwise(recent))
    return falls <= over // 4


def is_stuck(recent: History, over: int) -> bool:
    """Whether the watermark stands still although elements arrive and the clock advances."""
    marks = {each.watermark for each in recent}
    return len(recent) >= over and len(marks) == 1 and None not in marks and any(each.counts.read for each in recent)


def _most_frequent(history: History) -> str:
    reasons: dict[str, int] = {}
    for each in history:
        for reason, many in each.reasons.items():
            reasons[reason] = reasons.get(reason, 0) + many
    return max(reasons, key=lambda reason: reasons[reason], default="no reason recorded")
