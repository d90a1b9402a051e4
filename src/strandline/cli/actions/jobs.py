"""List the jobs in some folders and print the status of one job, from the files in its folder."""

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
from strandline.cli.terminal import cell, indented, printable, safe_console
from strandline.observe.known_jobs import jobs_of_this_machine
from strandline.observe.metrics.encoding import to_plain
from strandline.observe.metrics.history import History, JobState, JobView, find_jobs
from strandline.observe.metrics.metrics import BatchMetrics
from strandline.observe.number_format import conserved, count, duration
from strandline.observe.verdicts import Level, Verdict, verdicts, worst

COLOURS: Final = {Level.OK: "green", Level.WARN: "yellow", Level.BAD: "red"}
_STATES: Final = {JobState.FAILED: "bold red", JobState.DEAD: "bold red", JobState.WAITING: "yellow"}
_VERDICT_SECONDS: Final = 120
_EVENTS: Final = 8
_PIPE_WIDTH: Final = 240

JobStatus = tuple[JobView, list[Verdict], BatchMetrics | None]
"""A job, its verdicts, and its last batch."""


def run_jobs(folders: Sequence[Path], *, as_json: bool) -> int:
    """Print a line for each job; return 1 if a job failed or died."""
    places = list(folders) or [Path(each) for each in settings().value("jobs.folders")]
    statuses = [_status(folder) for folder in (find_jobs(places) if folders else jobs_of_this_machine(places))]
    if as_json:
        print(json.dumps([_summary(*each) for each in statuses], indent=2))
    else:
        _show_jobs(statuses, places)
    return int(any(job.state in (JobState.FAILED, JobState.DEAD) for job, _, _ in statuses))


def run_status(checkpoint: Path, *, as_json: bool) -> int:
    """Print the status of one job; return 1 if it failed or died, or a metric is bad."""
    with History(checkpoint) as history:
        job, found, latest = _read_status(history)
        events, alarms = history.events(limit=_EVENTS), [each for each in history.alarms() if each.state != "ok"]
    if as_json:
        fields = {
            "job": asdict(job),
            "verdicts": [asdict(each) for each in found],
            "latest": None if latest is None else to_plain(latest),
            "alarms": [asdict(each) for each in alarms],
            "events": [asdict(each) for each in events],
        }
        print(json.dumps(fields, indent=2))
    else:
        console = wide_console()
        console.print(header(job, latest))
        console.print(verdict_table(found))
        for alarm in alarms:
            console.print(cell(f"{alarm.state}: {alarm.rule}: {alarm.text}. Hint: {alarm.hint}", "red"))
        for event in events:
            console.print(cell(f"{_at(event.at)}  {event.kind}  {event.text}", "dim"))
    return int(job.state in (JobState.FAILED, JobState.DEAD) or worst(found) is Level.BAD)


def wide_console() -> Console:
    """Return a console as wide as the terminal, or wide enough for a table if the output is a pipe or a file."""
    found = safe_console(highlight=False, markup=False, emoji=False)
    return found if found.is_terminal else safe_console(highlight=False, markup=False, emoji=False, width=_PIPE_WIDTH)


def _status(folder: Path) -> JobStatus:
    """Read a job's status; a folder that cannot be read does not hide the other jobs."""
    try:
        with History(folder) as history:
            return _read_status(history)
    except Exception as problem:  # noqa: BLE001 - a damaged file has errors of every kind
        return JobView(str(folder), folder.name, JobState.UNKNOWN, str(problem)), [], None


def _read_status(history: History) -> JobStatus:
    """Return the job, the verdicts over the last two minutes before its last batch, and that batch."""
    latest = history.latest()
    recent = [] if latest is None else history.batches(since=latest.at - _VERDICT_SECONDS * 1000)
    return history.job(), verdicts(recent), latest


def _summary(job: JobView, found: Sequence[Verdict], latest: BatchMetrics | None) -> dict[str, Any]:
    fields: dict[str, Any] = {name: each for name, each in asdict(job).items() if name != "stages"}
    fields |= {"verdict": worst(found).value, "batch": None, "behind_seconds": None, "lag_records": None}
    if latest is not None:
        fields |= {
            "batch": latest.batch,
            "read_per_second": round(latest.read_per_second, 3),
            "behind_seconds": latest.behind_seconds,
            "lag_records": latest.lag_records,
        }
    return fields


def _show_jobs(statuses: Sequence[JobStatus], places: Sequence[Path]) -> None:
    console = wide_console()
    if not statuses:
        console.print(f"There are no jobs in {', '.join(map(str, places))}.")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("job", "state", "batch", "events/s", "lag", "watermark", "verdict", "folder"):
        table.add_column(name, justify="right" if name in ("batch", "events/s", "lag") else "left", overflow="fold")
    for job, found, latest in statuses:
        level = worst(found)
        table.add_row(
            cell(job.name),
            Text(job.state.value, _STATES.get(job.state, "")),
            *_numbers(latest),
            Text(level.value if found else "–", COLOURS[level]),
            cell(job.checkpoint),
        )
    console.print(table)
    for job, _, _ in statuses:
        if job.state is JobState.UNKNOWN and job.problem:
            console.print(cell(f"{job.name}: {job.problem}", "yellow"))


def _numbers(latest: BatchMetrics | None) -> tuple[str, str, str, str]:
    if latest is None:
        return "–", "–", "–", "–"
    lag = "–" if latest.lag_records is None else count(latest.lag_records)
    behind = "at the end" if latest.ended else "none yet"
    if latest.behind_seconds is not None:
        behind = f"{duration(latest.behind_seconds)} behind"
    return str(latest.batch), count(latest.read_per_second), lag, behind


def header(job: JobView, latest: BatchMetrics | None) -> Text:
    """Describe the job and its state in one or two lines."""
    text = Text.assemble((printable(job.name), "bold"), "  ", (job.state.value, _STATES.get(job.state, "green")))
    if job.pid is not None:
        text.append(printable(f"  process {job.pid} on {job.host}, restarts {job.restarts}"), "dim")
    if job.heartbeat is not None and not job.state.is_alive:
        ago = time.time() - job.heartbeat / 1000
        text.append(f", last seen {duration(max(ago, 0))} ago", "dim")
    if latest is not None:
        text.append(f"\nbatch {latest.batch}: {conserved(latest.counts)}")
    if job.problem:
        text.append(f"\n{indented(job.problem)}", "red")
    return text


def verdict_table(found: Sequence[Verdict]) -> Table:
    """Return a table of the key metrics, each with its verdict."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for each in found:
        level = Text(each.level.value, COLOURS[each.level])
        table.add_row(level, cell(each.number), cell(each.value, "bold"), cell(each.why))
    return table


def _at(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
