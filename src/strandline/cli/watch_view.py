"""A job in the terminal, whoever runs it: its golden numbers as its folder tells them, again and again."""

import json
import time
from pathlib import Path
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from strandline.cli.actions.jobs import head, table_of
from strandline.observe.metrics.encoding import to_plain
from strandline.observe.metrics.history import History, JobState, JobView
from strandline.observe.metrics.metrics import BatchMetrics
from strandline.observe.number_format import count, duration
from strandline.observe.verdicts import verdicts, worst

_JUDGED: Final = 120_000
_SPARKS: Final = "▁▂▃▄▅▆▇█"
_WIDTH: Final = 60


def run_watch(checkpoint: Path, *, every: float, as_json: bool) -> int:
    """Shows it until it ends; exit code 1 if it failed or died."""
    console = Console(highlight=False, soft_wrap=True)
    with History(checkpoint) as history:
        if as_json or not console.is_terminal:
            _lines(history, every, as_json=as_json)
        else:
            _live(history, every, console)
        return int(history.job().state in (JobState.FAILED, JobState.DEAD))


def _lines(history: History, every: float, *, as_json: bool) -> None:
    """A line for each point, until the job no longer runs."""
    shown = 0
    while True:
        job, found = history.job(), history.batches(since=shown)
        # The newest point may still grow, so it is told once the next is there, or the job has ended.
        for batch in found[:-1] if job.state.is_alive else found:
            shown = max(shown, batch.at)
            print(json.dumps({"job": job.name, **to_plain(batch)}) if as_json else _line(batch), flush=True)
        if not job.state.is_alive:
            print(json.dumps({"job": job.name, "state": job.state.value}) if as_json else f"{job.name}: {job.state}")
            return
        time.sleep(every)


def _line(batch: BatchMetrics) -> str:
    lag = "" if batch.lag_records is None else f", lag {count(batch.lag_records)}"
    behind = "" if batch.behind_seconds is None else f", watermark {duration(batch.behind_seconds)} behind"
    return f"batch {batch.batch}: {count(batch.read_per_second)}/s in, {batch.emitted} out{lag}{behind}"


def _live(history: History, every: float, console: Console) -> None:
    with Live(console=console, auto_refresh=False) as live:
        while True:
            job = history.job()
            live.update(picture(history, job), refresh=True)
            if not job.state.is_alive:
                return
            time.sleep(every)


def picture(history: History, job: JobView) -> Panel:
    """What is seen of a job at one look."""
    latest = history.latest()
    recent = [] if latest is None else history.batches(since=latest.at - _JUDGED)
    found = verdicts(recent)
    rates = Text(f"in a second  {sparks([each.read_per_second for each in recent])}", "cyan")
    marks = Text(f"watermark    {sparks([each.behind_seconds or 0.0 for each in recent])}", "cyan")
    return Panel(Group(head(job, latest), rates, marks, table_of(found)), title=f"{job.name}: {worst(found).value}")


def sparks(values: list[float]) -> str:
    """A line of small bars, the last ones if there are too many."""
    recent = values[-_WIDTH:]
    most = max(recent, default=0.0)
    if most <= 0:
        return _SPARKS[0] * len(recent)
    return "".join(_SPARKS[round(max(value, 0) / most * (len(_SPARKS) - 1))] for value in recent)
