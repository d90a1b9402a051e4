"""Prepare the values of each dashboard panel from a job's metrics."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from itertools import pairwise
from typing import Final

from strandline.dashboard import api_types
from strandline.dashboard.jobs import WatchedJob
from strandline.model.counts import InputCounts
from strandline.model.histograms import Histogram
from strandline.observe.metrics.history import History
from strandline.observe.metrics.metrics import STAGES, TIMINGS, BatchMetrics
from strandline.observe.metrics.tables import PaneLine, Point

GAP: Final = 4
"""A distance of this many times the usual one between two points is a gap, which breaks a line."""
MOST_HOT: Final = 20
MOST_PANES: Final = 2_000
MOST_KEYS: Final = 200


def overview(job: WatchedJob, history: History, recent: Sequence[BatchMetrics], now: int) -> api_types.Overview:
    assert job.view is not None  # noqa: S101 - a shown job has been read
    assert job.card is not None  # noqa: S101
    view, last = job.view, job.latest
    return api_types.Overview(
        now=now,
        card=job.card,
        run=view.run,
        restarts=view.restarts,
        started=view.started,
        ended=view.ended,
        host=view.host,
        pid=view.pid,
        problem=view.problem,
        alarms=tuple(
            api_types.Alarm(each.rule, each.state, each.since, each.text, each.hint)
            for each in history.alarms()
            if each.state != "ok"
        ),
        ledger=_ledger(recent),
        signs=job.signs,
        stages=stage_times(recent),
        limited_by=limited_by(job.signs),
        latency=_latencies(recent),
        watermark=None if last is None else last.watermark,
        behind=None if last is None else last.behind_seconds,
        held_by=None if last is None else last.held_by,
        idle=() if last is None else last.idle,
        retries=sum(batch.retries for batch in recent),
        budget=None if last is None else last.budget,
    )


def limited_by(signs: Sequence[api_types.Sign]) -> str:
    """Which stage limits the job."""
    return next((f"{sign.value}: {sign.why}" for sign in signs if sign.name == "backpressure"), "")


def _ledger(recent: Iterable[BatchMetrics]) -> api_types.Ledger:
    totals = Counter[str]()
    for batch in recent:
        counts = batch.counts
        totals.update(
            read=counts.read, again=counts.again, contributed=counts.contributed, late=counts.late, dead=counts.dead,
            filtered=counts.filtered, emitted=batch.emitted, retractions=batch.retractions,
        )  # fmt: skip
    names = ("read", "again", "contributed", "late", "dead", "filtered", "emitted", "retractions")
    return api_types.Ledger(**{name: totals[name] for name in names})


def stage_times(recent: Sequence[BatchMetrics]) -> tuple[api_types.StageTime, ...]:
    """The time of the last batches by stage, in order."""
    spent: dict[str, float] = defaultdict(float)
    for batch in recent:
        for name, seconds in batch.stages.items():
            spent[name] += seconds
    total, batches = sum(spent.values()), sum(batch.batches for batch in recent)
    order = [*STAGES, *(name for name in spent if name not in STAGES)]
    return tuple(
        api_types.StageTime(name, spent[name] / batches, spent[name] / total)
        for name in order
        if name in spent and total and batches
    )


def _latencies(recent: Sequence[BatchMetrics]) -> tuple[api_types.Latency, ...]:
    latencies = []
    for timing in TIMINGS:
        found = reduce(Histogram.__add__, (batch.latency.get(timing, Histogram()) for batch in recent), Histogram())
        if found.total:
            shares = [(found.percentile(share) or 0.0) / 1000 for share in (0.5, 0.95, 0.99)]
            latencies.append(api_types.Latency(timing, found.total, *shares))
    return tuple(latencies)


_LEVELS: Final[dict[str, Callable[[Point], float | None]]] = {
    "lag_records": lambda point: point.lag_records,
    "lag_seconds": lambda point: point.lag_seconds,
    "behind": lambda point: None if point.watermark is None else (point.clock - point.watermark) / 1000,
    "state_rows": lambda point: point.state_rows,
    "state_bytes": lambda point: point.state_bytes,
}
_WORST: Final[dict[str, Callable[[Point], float | None]]] = {
    "p50": lambda point: point.p50,
    "p95": lambda point: point.p95,
    "p99": lambda point: point.p99,
    "took": lambda point: point.took,
    "deliver": lambda point: point.deliver,
    "commits": lambda point: point.commits,
}
_RATES: Final[dict[str, Callable[[Point], float]]] = {
    "in": lambda point: point.read,
    "out": lambda point: point.emitted,
    "late": lambda point: point.late,
    "dead": lambda point: point.dead,
}


def series(points: Sequence[Point], most: int) -> api_types.Series:
    """The golden metrics over time: last values of levels, means of rates, maxima of durations."""
    groups = [*buckets(points, most)]
    at: list[int] = []
    for group in groups:
        at.append(group[-1].at if group else at[-1] + 1)
    values: dict[str, tuple[float | None, ...]] = {}
    for name, level in _LEVELS.items():
        values[name] = tuple(_short(level(group[-1])) if group else None for group in groups)
    for name, time in _WORST.items():
        values[name] = tuple(_short(_most(map(time, group))) for group in groups)
    seconds = [sum(point.seconds for point in group) for group in groups]
    for name, many in _RATES.items():
        values[name] = tuple(
            _short(sum(map(many, group)) / length) if length else None
            for group, length in zip(groups, seconds, strict=True)
        )
    return api_types.Series(tuple(at), values)


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def buckets(points: Sequence[Point], most: int) -> Iterable[Sequence[Point]]:
    """Group neighbouring points to limit their number; an empty group marks a gap."""
    if not points:
        return
    size = max(1, -(-len(points) // most))
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    lengths = sorted(b[0].at - a[-1].at for a, b in pairwise(groups))
    # Old points are a minute apart, which is not a gap.
    usual = max(lengths[len(lengths) // 2] * GAP, 150_000) if lengths else 0
    for number, group in enumerate(groups):
        if number and group[0].at - groups[number - 1][-1].at > usual:
            yield ()
        yield group


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def times(job: WatchedJob, points: Sequence[Point], most: int, now: int) -> api_types.Times:
    groups = [group[-1] for group in buckets(points, most) if group]
    last = job.latest
    return api_types.Times(
        now=now,
        clock=tuple(point.clock for point in groups),
        watermark=tuple(point.watermark for point in groups),
        held_by=None if last is None else last.held_by,
        idle=() if last is None else last.idle,
        ended=last is not None and last.ended,
    )


def lateness(recent: Sequence[BatchMetrics]) -> api_types.Lateness:
    """How far elements were behind the highest event time, and the cumulative share."""
    found = reduce(Histogram.__add__, (batch.lateness for batch in recent), Histogram())
    bars, passed = [], 0
    for lower, upper, many in found.bars():
        passed += many
        bars.append(api_types.Bar(round(lower, 3), round(upper, 3), many, passed / found.total))
    return api_types.Lateness(
        measured=found.total,
        late=sum(batch.counts.late for batch in recent),
        read=sum(batch.counts.offered for batch in recent),
        since=recent[0].at if recent else None,
        bars=tuple(bars),
    )


def partitions(last: BatchMetrics | None, now: int) -> api_types.Partitions:
    if last is None:
        return api_types.Partitions(now, 0, ())
    shown = [
        api_types.Partition(
            each.name, each.event_time, each.watermark, each.heard, each.idle, each.finished,
            each.name == last.held_by, each.lag_records, each.lag_seconds,
        )
        for each in last.partitions
    ]  # fmt: skip
    order = sorted(shown, key=lambda each: (not each.holds, each.finished, each.idle, each.name))
    return api_types.Partitions(now, max(last.partition_count, len(shown)), tuple(order))


def keys(recent: Sequence[BatchMetrics]) -> api_types.Keys:
    """The hot keys, and how evenly key groups are filled, over the last batches."""
    heavy, of_step = Counter[tuple[str, str]](), Counter[str]()
    groups: dict[str, tuple[int, ...]] = {}
    for batch in recent:
        heavy.update({(hot.step, hot.key): hot.count for hot in batch.hot})
        for step in batch.steps:
            of_step[step.name] += step.counts.read
            known = groups.get(step.name, ())
            alike = len(known) == len(step.groups)
            groups[step.name] = tuple(map(sum, zip(known, step.groups, strict=True))) if alike else step.groups
    hot = [
        api_types.Hot(step, key, many, min(many / of_step[step], 1.0) if of_step[step] else 0.0)
        for (step, key), many in heavy.most_common(MOST_HOT)
    ]
    skew = [
        api_types.Skew(name, counts, max(counts) * len(counts) / sum(counts) if sum(counts) else 0.0)
        for name, counts in groups.items()
        if counts
    ]
    return api_types.Keys(tuple(hot), tuple(skew))


def state(recent: Sequence[BatchMetrics]) -> api_types.State:
    if not recent:
        return api_types.State((), ())
    some = recent[-120:]
    steps = []
    for step in some[-1].steps:
        history = [next((each.rows for each in batch.steps if each.name == step.name), 0) for batch in some]
        read = sum(each.counts.read for batch in some for each in batch.steps if each.name == step.name)
        late = sum(each.counts.late for batch in some for each in batch.steps if each.name == step.name)
        steps.append(
            api_types.StepState(
                step.name, step.rows, step.bytes, step.watermark, step.output_watermark, read, late, tuple(history)
            )
        )
    return api_types.State(tuple(batch.at for batch in some), tuple(steps), _join_inputs(some))


def _join_inputs(some: Sequence[BatchMetrics]) -> tuple[api_types.JoinInput, ...]:
    """Add up what joins did with the rows of each side."""
    total: dict[tuple[str, str], InputCounts] = {}
    for step in (step for batch in some for step in batch.steps):
        for role, counts in step.inputs.items():
            before = total.get((step.name, role))
            total[step.name, role] = counts if before is None else before.then(counts)
    return tuple(
        api_types.JoinInput(
            step, role, each.accepted, each.late, each.stored, each.ended, each.unmatched, each.match_rate,
            each.oldest_unmatched,
        )
        for (step, role), each in sorted(total.items())
    )  # fmt: skip


def panes(history: History, search: str, key: str, start: int | None) -> api_types.Panes:
    """Matching keys, the windows of the selected key, and the panes of the selected window in order.

    Without a start, the window is the global one.
    """
    found = history.panes(search or None, limit=MOST_PANES)
    many = Counter(line.key for line in found)
    by_window: dict[tuple[int | None, int | None], list[PaneLine]] = defaultdict(list)
    lines_of_key = [line for line in history.panes(key, limit=MOST_PANES) if line.key == key] if key else []
    for line in lines_of_key:
        by_window[line.start, line.until].append(line)
    windows = [
        api_types.PaneWindow(
            begin,
            until,
            len(lines),
            sum(line.timing == "late" for line in lines),
            sum(line.taken_back for line in lines),
        )
        for (begin, until), lines in by_window.items()
    ]
    windows.sort(key=lambda window: -(window.start or 0))
    chosen = [line for line in lines_of_key if line.start == start]
    return api_types.Panes(
        tuple(api_types.PaneKey(name, count) for name, count in many.most_common(MOST_KEYS)),
        tuple(windows),
        tuple(_pane(line) for line in chosen),
    )


def _pane(line: PaneLine) -> api_types.Pane:
    return api_types.Pane(
        line.id, line.at, line.batch, line.key, line.start, line.until, line.timing, line.pane, line.is_last,
        line.taken_back, line.said,
    )  # fmt: skip


def events(history: History, limit: int) -> api_types.Events:
    found = history.events(limit=limit)
    return api_types.Events(
        tuple(api_types.EventLine(each.at, each.run, each.kind, each.text) for each in reversed(found))
    )
