"""Define alarm rules over a job's stored metrics: each is a value with a pure function, and has good defaults.

A rule's finding must last for `wait` before the alarm fires, and must be gone for as long before it is resolved, so
that a number that oscillates around its limit fires once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import ClassVar, Final

from strandline.model.elements import Duration
from strandline.observe.metrics.metrics import BatchMetrics
from strandline.observe.metrics.tables import Point
from strandline.observe.number_format import bytes_of, count, duration

_MS_PER_SECOND: Final = 1000


@dataclass(frozen=True, slots=True)
class RuleInput:
    """Stored metrics that rules use: points oldest first, the latest batch, and the job's starts."""

    now: int
    points: Sequence[Point] = ()
    latest: BatchMetrics | None = None
    starts: Sequence[int] = ()

    def since(self, ago: Duration) -> "list[Point]":
        return [point for point in self.points if point.at > self.now - ago.ms]


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, and what would help."""

    text: str
    hint: str


@dataclass(frozen=True, slots=True)
class LagGrowing:
    """The lag grows over a number of batches."""

    batches: int = 20
    wait: Duration = Duration(0)

    name: ClassVar[str] = "lag_growing"

    def find(self, metrics: RuleInput) -> Finding | None:
        lags = [point.lag_records for point in metrics.points if point.lag_records is not None][-self.batches - 1 :]
        rises = sum(later > earlier for earlier, later in pairwise(lags))
        if len(lags) <= self.batches or rises < 0.8 * self.batches or lags[-1] <= lags[0]:
            return None
        text = f"the lag has grown from {count(lags[0])} to {count(lags[-1])} records over {self.batches} batches"
        return Finding(text, "the job is too slow for its input: `strandline status` shows which stage limits it")


@dataclass(frozen=True, slots=True)
class WatermarkStuck:
    """The watermark stands still although elements arrive."""

    after: Duration = Duration(120_000)
    wait: Duration = Duration(0)

    name: ClassVar[str] = "watermark_stuck"

    def find(self, metrics: RuleInput) -> Finding | None:
        last = metrics.points[-1] if metrics.points else None
        if last is None or metrics.latest is None or metrics.latest.ended:
            return None
        same = [point for point in metrics.points if point.watermark == last.watermark]
        stands = last.at - same[0].at
        if stands < self.after.ms or not any(point.read for point in same[1:]):
            return None
        what = "there is no watermark" if last.watermark is None else "the watermark has not moved"
        return Finding(
            f"{what} for {duration(stands / _MS_PER_SECOND)}{_silent_partition(metrics.latest)}",
            _remedy(metrics.latest),
        )


def _silent_partition(latest: BatchMetrics) -> str:
    held = next((each for each in latest.partitions if each.name == latest.held_by), None)
    if held is None:
        return ""
    if held.heard is None or held.event_time is None:
        return f": partition {held.name} has never sent a record"
    return f": partition {held.name} has been silent for {duration((latest.clock - held.heard) / _MS_PER_SECOND)}"


def _remedy(latest: BatchMetrics) -> str:
    if latest.held_by is None:
        return "see `strandline status` for its partitions"
    return (
        f"if {latest.held_by} may be idle, stop it from holding the watermark back: "
        'event_time("…", sl.bounded(…).idle_after("1m"))'
    )


@dataclass(frozen=True, slots=True)
class LateRate:
    """Too many elements are late."""

    share: float = 0.01
    over: Duration = Duration(300_000)
    at_least: int = 1_000
    wait: Duration = Duration(60_000)

    name: ClassVar[str] = "late_rate"

    def find(self, metrics: RuleInput) -> Finding | None:
        recent = metrics.since(self.over)
        offered, late = sum(point.offered for point in recent), sum(point.late for point in recent)
        if sum(point.read for point in recent) < self.at_least or late <= self.share * offered:
            return None
        text = f"{late / offered:.1%} of {count(offered)} elements were late; the limit is {self.share:.1%}"
        return Finding(
            text, "wait longer, with a larger bounded(…) or allow_lateness(…): the lateness histogram shows how long"
        )


@dataclass(frozen=True, slots=True)
class DeadLetterRate:
    """Too much of the input is dead letters, or the job's failure budget is nearly spent."""

    share: float = 0.01
    budget: float = 0.8
    over: Duration = Duration(300_000)
    at_least: int = 100
    wait: Duration = Duration(0)

    name: ClassVar[str] = "dead_letters"

    def find(self, metrics: RuleInput) -> Finding | None:
        hint = "strandline dlq count --by reason shows the reasons"
        spent = None if metrics.latest is None else metrics.latest.budget
        if spent is not None and spent >= self.budget:
            return Finding(f"{spent:.0%} of the failure budget is spent; the job stops when all of it is", hint)
        recent = metrics.since(self.over)
        read, dead = sum(point.read for point in recent), sum(point.dead for point in recent)
        if read < self.at_least or dead <= self.share * read:
            return None
        return Finding(f"{dead / read:.1%} of {count(read)} records are dead letters", hint)


@dataclass(frozen=True, slots=True)
class HighLatency:
    """Rows become visible too long after their event time."""

    seconds: float = 600.0
    share: float = 0.99
    wait: Duration = Duration(60_000)

    name: ClassVar[str] = "latency"

    def find(self, metrics: RuleInput) -> Finding | None:
        latest = metrics.latest
        if latest is None:
            return None
        timing = "on_time" if "on_time" in latest.latency else "element"
        found = latest.latency_seconds(self.share, timing)
        if found is None or found <= self.seconds:
            return None
        text = f"p{self.share * 100:g} from event time to the sink is {duration(found)}"
        return Finding(text, f"the limit is {duration(self.seconds)}: look at lag, watermark and batch time")


@dataclass(frozen=True, slots=True)
class StateGrowing:
    """State has grown over a long time, and never shrunk."""

    over: Duration = Duration(1_800_000)
    factor: float = 2.0
    at_least: int = 10_000
    wait: Duration = Duration(60_000)

    name: ClassVar[str] = "state_growing"

    def find(self, metrics: RuleInput) -> Finding | None:
        recent = metrics.since(self.over)
        if not recent or recent[-1].at - recent[0].at < 0.9 * self.over.ms:
            return None
        rows = [point.state_rows for point in recent]
        lowest_late = min(rows[len(rows) // 2 :])
        highest_early = max(rows[: len(rows) // 4] or rows[:1])
        if rows[-1] < self.at_least or rows[-1] < self.factor * rows[0] or lowest_late < highest_early:
            return None
        size = "" if recent[-1].state_bytes is None else f", {bytes_of(recent[-1].state_bytes)}"
        length = duration(self.over.ms / _MS_PER_SECOND)
        text = f"state has grown from {count(rows[0])} to {count(rows[-1])} rows{size} in {length}"
        return Finding(text, "windows that never close, or keys without time_to_live(…), keep growing")


@dataclass(frozen=True, slots=True)
class RestartLoop:
    """The job restarts again and again."""

    starts: int = 3
    within: Duration = Duration(600_000)
    wait: Duration = Duration(0)

    name: ClassVar[str] = "restart_loop"

    def find(self, metrics: RuleInput) -> Finding | None:
        recent = [at for at in metrics.starts if at > metrics.now - self.within.ms]
        if len(recent) <= self.starts:
            return None
        text = f"the job was started {len(recent)} times within {duration(self.within.ms / _MS_PER_SECOND)}"
        return Finding(text, "the events of `strandline status` show how each run ended")


Rule = LagGrowing | WatermarkStuck | LateRate | DeadLetterRate | HighLatency | StateGrowing | RestartLoop

KINDS: Final[tuple[type[Rule], ...]] = (
    LagGrowing, WatermarkStuck, LateRate, DeadLetterRate, HighLatency, StateGrowing, RestartLoop,
)  # fmt: skip
DEFAULTS: Final[tuple[Rule, ...]] = tuple(kind() for kind in KINDS)


class AlarmState(StrEnum):
    """State of an alarm."""

    OK = "ok"
    PENDING = "pending"
    """A condition holds, but not for long enough."""
    FIRING = "firing"


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm with its state since a time; `quiet` is the time since when the condition no longer holds while it
    fires."""

    rule: Rule
    state: AlarmState = AlarmState.OK
    since: int = 0
    text: str = ""
    hint: str = ""
    count: int = 0
    """How often it has fired."""
    quiet: int | None = field(default=None)

    @property
    def is_firing(self) -> bool:
        return self.state is AlarmState.FIRING


RESOLVED_AFTER: Final = Duration(60_000)
"""How long the condition must be gone before an alarm is resolved, unless its rule waits longer."""


def evaluate(alarm: Alarm, metrics: RuleInput) -> Alarm:
    """Return the alarm after another evaluation of its rule."""
    found, now = alarm.rule.find(metrics), metrics.now
    if found is None:
        return _when_clear(alarm, now)
    updated = replace(alarm, text=found.text, hint=found.hint, quiet=None)
    if alarm.is_firing:
        return updated
    started = alarm.since if alarm.state is AlarmState.PENDING else now
    if now - started >= alarm.rule.wait.ms:
        return replace(updated, state=AlarmState.FIRING, since=now, count=alarm.count + 1)
    return replace(updated, state=AlarmState.PENDING, since=started)


def _when_clear(alarm: Alarm, now: int) -> Alarm:
    if not alarm.is_firing:
        return alarm if alarm.state is AlarmState.OK else Alarm(alarm.rule, since=now, count=alarm.count)
    quiet = now if alarm.quiet is None else alarm.quiet
    if now - quiet >= max(RESOLVED_AFTER.ms, alarm.rule.wait.ms):
        return Alarm(alarm.rule, since=now, text=alarm.text, count=alarm.count)
    return replace(alarm, quiet=quiet)
