"""Every job below some folders, and one job in full: what its folder tells of it."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from strandline.cli.config import settings
from strandline.observe.known_jobs import jobs_of_this_machine
from strandline.observe.metrics.encoding import to_plain
from strandline.observe.metrics.history import History, JobState, JobView, find_jobs
from strandline.observe.metrics.metrics import BatchMetrics
from strandline.observe.number_format import conserved, count, duration
from strandline.observe.verdicts import Level, Verdict, verdicts, worst

COLOURS: Final = {Level.OK: "green", Level.WARN: "yellow", Level.BAD: "red"}
_STATES: Final = {JobState.FAILED: "bold red", JobState.DEAD: "bold red", JobState.WAITING: "yellow"}
_JUDGED_SECONDS: Final = 120
_EVENTS: Final = 8
_WIDE: Final = 240


def run_jobs(folders: Sequence[Path], *, as_json: bool) -> int:
    """Prints a line for each job; exit code 1 if one of them failed or died."""
    places = list(folders) or [Path(each) for each in settings().value("jobs.folders")]
    seen = [_seen(folder) for folder in (find_jobs(places) if folders else jobs_of_this_machine(places))]
    if as_json:
        print(json.dumps([_brief(*each) for each in seen], indent=2))
    else:
        _show_jobs(seen, places)
    return int(any(job.state in (JobState.FAILED, JobState.DEAD) for job, _, _ in seen))


def run_status(checkpoint: Path, *, as_json: bool) -> int:
    """Prints all about one job; exit code 1 if it failed or died, or a number is bad."""
    with History(checkpoint) as history:
        job, found, latest = _looked(history)
        events, alarms = history.events(limit=_EVENTS), [each for each in history.alarms() if each.state != "ok"]
    if as_json:
        told = {
            "job": asdict(job),
            "verdicts": [asdict(each) for each in found],
            "latest": None if latest is None else to_plain(latest),
            "alarms": [asdict(each) for each in alarms],
            "events": [asdict(each) for each in events],
        }
        print(json.dumps(told, indent=2))
    else:
        console = console_of()
        console.print(head(job, latest))
        console.print(table_of(found))
        for alarm in alarms:
            console.print(Text(f"{alarm.state}: {alarm.rule}: {alarm.text}. Hint: {alarm.hint}", "red"))
        for event in events:
            console.print(Text(f"{_at(event.at)}  {event.kind}  {event.text}", "dim"))
    return int(job.state in (JobState.FAILED, JobState.DEAD) or worst(found) is Level.BAD)


def console_of() -> Console:
    """A terminal as wide as it is; a pipe or a file is wide enough."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=_WIDE)


def _seen(folder: Path) -> tuple[JobView, list[Verdict], BatchMetrics | None]:
    with History(folder) as history:
        return _looked(history)


def _looked(history: History) -> tuple[JobView, list[Verdict], BatchMetrics | None]:
    """A job, what the last two minutes before its last batch say of it, and that batch."""
    latest = history.latest()
    recent = [] if latest is None else history.batches(since=latest.at - _JUDGED_SECONDS * 1000)
    return history.job(), verdicts(recent), latest


def _brief(job: JobView, found: Sequence[Verdict], latest: BatchMetrics | None) -> dict[str, Any]:
    told: dict[str, Any] = {name: each for name, each in asdict(job).items() if name != "stages"}
    told |= {"verdict": worst(found).value, "batch": None, "behind_seconds": None, "lag_records": None}
    if latest is not None:
        told |= {
            "batch": latest.batch,
            "read_per_second": round(latest.read_per_second, 3),
            "behind_seconds": latest.behind_seconds,
            "lag_records": latest.lag_records,
        }
    return told


def _show_jobs(seen: Sequence[tuple[JobView, list[Verdict], BatchMetrics | None]], places: Sequence[Path]) -> None:
    console = console_of()
    if not seen:
        console.print(f"There are no jobs in {', '.join(map(str, places))}.")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("job", "state", "batch", "in a second", "lag", "watermark", "verdict", "folder"):
        table.add_column(name, justify="right" if name in ("batch", "in a second", "lag") else "left", overflow="fold")
    for job, found, latest in seen:
        level = worst(found)
        table.add_row(
            job.name,
            Text(job.state.value, _STATES.get(job.state, "")),
            *_numbers(latest),
            Text(level.value if found else "–", COLOURS[level]),
            job.checkpoint,
        )
    console.print(table)


def _numbers(latest: BatchMetrics | None) -> tuple[str, str, str, str]:
    if latest is None:
        return "–", "–", "–", "–"
    lag = "–" if latest.lag_records is None else count(latest.lag_records)
    behind = "at the end" if latest.ended else "none yet"
    if latest.behind_seconds is not None:
        behind = f"{duration(latest.behind_seconds)} behind"
    return str(latest.batch), count(latest.read_per_second), lag, behind


def head(job: JobView, latest: BatchMetrics | None) -> Text:
    """Who it is and how it is, in a line or two."""
    told = Text.assemble((job.name, "bold"), "  ", (job.state.value, _STATES.get(job.state, "green")))
    if job.pid is not None:
        told.append(f"  process {job.pid} on {job.host}, restarts {job.restarts}", "dim")
    if job.heartbeat is not None and not job.state.is_alive:
        ago = time.time() - job.heartbeat / 1000
        told.append(f", last seen {duration(max(ago, 0))} ago", "dim")
    if latest is not None:
        told.append(f"\nbatch {latest.batch}: {conserved(latest.counts)}")
    if job.problem:
        told.append(f"\n{job.problem}", "red")
    return told


def table_of(found: Sequence[Verdict]) -> Table:
    """The golden numbers, each with its verdict."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for each in found:
        table.add_row(Text(each.level.value, COLOURS[each.level]), each.number, Text(each.value, "bold"), each.why)
    return table


def _at(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
