"""Prepare the five golden metrics of a job for display, with the verdicts of `observe`."""

from collections.abc import Callable, Sequence
from typing import Final

from strandline.dashboard.api_types import Golden, Sign, Unit, Verdict
from strandline.observe.metrics.history import JobState, JobView
from strandline.observe.metrics.metrics import BatchMetrics
from strandline.observe.metrics.tables import AlarmLine
from strandline.observe.verdicts import Verdict as Judged
from strandline.observe.verdicts import verdicts

GOLDEN_FIVE: Final = ("lag", "throughput", "latency", "commit", "state")
_LABELS: Final = {
    "lag": "Lag",
    "throughput": "Events in",
    "latency": "End to end, p99",
    "commit": "Commit",
    "state": "State",
}
SPARKLINE_POINTS: Final = 24
"""The number of points in a sparkline."""
_NOT_MEASURED: Final = "–"
_RATE_OVER: Final = 30
_WORST: Final[tuple[Verdict, ...]] = ("bad", "warn", "ok", "off")


def signs(recent: Sequence[BatchMetrics], *, alive: bool) -> tuple[Sign, ...]:
    """Every verdict on the last batches; an ended job's numbers are shown, but not judged."""
    return tuple(_sign(each, alive=alive) for each in verdicts(recent))


def golden_five(recent: Sequence[BatchMetrics], judged: Sequence[Sign]) -> tuple[Golden, ...]:
    """The five golden metrics, each with its recent values."""
    by_name = {sign.name: sign for sign in judged}
    none = Sign("", _NOT_MEASURED, "off", "No batch yet.")
    return tuple(_golden(name, by_name.get(name, none), recent) for name in GOLDEN_FIVE)


def job_verdict(job: JobView, judged: Sequence[Sign], alarms: Sequence[AlarmLine]) -> tuple[Verdict, str]:
    """The job's verdict and a sentence: why it ended, a firing alarm, or its worst number."""
    by_name = _by_state(job)
    if by_name is not None:
        return by_name
    firing = [alarm for alarm in alarms if alarm.state == "firing"]
    if firing:
        return "bad", _sentence(firing[0].text)
    if not judged:
        return "ok", "Started; the first batch is running."
    worst = min(judged, key=lambda sign: _WORST.index(sign.verdict))
    if worst.verdict in ("bad", "warn"):
        return worst.verdict, f"{worst.name.capitalize()}: {worst.why}"
    return (
        "ok",
        "Draining: windows close, then the job ends." if job.state is JobState.DRAINING else "All numbers are fine.",
    )


def _by_state(job: JobView) -> tuple[Verdict, str] | None:
    match job.state:
        case JobState.DEAD:
            return "bad", "No heartbeat: its process is gone. Start it again."
        case JobState.FAILED:
            return "bad", f"Failed: {job.problem or 'no reason recorded'}"
        case JobState.WAITING:
            return "warn", f"Waiting, no data is lost: {job.problem or 'a service is unreachable'}"
        case JobState.COMPLETE:
            if job.problem:
                return "warn", _sentence(job.problem)
            return "off", "Complete: every source has ended, and every window is closed."
        case JobState.STOPPED:
            return "off", "Stopped; the next start continues from here."
        case JobState.UNKNOWN:
            return "off", "No numbers: it runs without metrics, or has no batch yet."
        case _:
            return None


def _sign(judged: Judged, *, alive: bool) -> Sign:
    measured = alive and judged.value != _NOT_MEASURED
    level: Verdict = judged.level.value if measured else "off"
    return Sign(judged.number, judged.value, level, _sentence(judged.why) if alive else "Last known value.")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def _golden(name: str, sign: Sign, recent: Sequence[BatchMetrics]) -> Golden:
    unit, number = _NUMBERS[name]
    series = tuple(
        None if (value := number(batch)) is None else round(value, 3) for batch in recent[-SPARKLINE_POINTS:]
    )
    value = series[-1] if series else None
    if name == "throughput" and recent:
        some = recent[-_RATE_OVER:]
        value = round(sum(batch.counts.read for batch in some) / (sum(batch.seconds for batch in some) or 1.0), 4)
    elif name == "latency":
        value = next((each for each in reversed(series) if each is not None), None)
    elif name == "lag" and value is None and recent and recent[-1].lag_records is not None:
        unit, value = "records", float(recent[-1].lag_records)
    return Golden(name, _LABELS[name], unit, value, sign.value, sign.verdict, sign.why, series)


def _p99(batch: BatchMetrics) -> float | None:
    """The p99 of on-time panes if there are any, since they wait for the watermark."""
    timing = "on_time" if "on_time" in batch.latency else next(iter(batch.latency), None)
    return None if timing is None else batch.latency_seconds(0.99, timing)


def _commit(batch: BatchMetrics) -> float | None:
    return (batch.stages.get("deliver", 0.0) + batch.stages.get("commit", 0.0)) / max(batch.batches, 1)


_NUMBERS: Final[dict[str, tuple[Unit, Callable[[BatchMetrics], float | None]]]] = {
    "lag": ("seconds", lambda batch: batch.lag_seconds),
    "throughput": ("per_second", lambda batch: batch.read_per_second),
    "latency": ("seconds", _p99),
    "commit": ("seconds", _commit),
    "state": ("rows", lambda batch: float(batch.state_rows)),
}
