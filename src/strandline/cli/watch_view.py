"""Watch a job's key metrics in the terminal, from the files in its folder, wherever the job runs."""

import json
import time
from pathlib import Path
from typing import Any, Final

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from strandline.cli.actions.jobs import header, verdict_table
from strandline.cli.terminal import cell, printable, safe_console, say
from strandline.observe.metrics.encoding import to_plain
from strandline.observe.metrics.history import History, JobState, JobView
from strandline.observe.metrics.metrics import BatchMetrics
from strandline.observe.number_format import count, duration
from strandline.observe.verdicts import verdicts, worst

_VERDICT_MS: Final = 120_000
_SPARKS: Final = "▁▂▃▄▅▆▇█"
_WIDTH: Final = 60


def run_watch(checkpoint: Path, *, every: float, as_json: bool) -> int:
    """Show the job until it ends; return 1 if it failed or died."""
    console = safe_console(highlight=False, soft_wrap=True)
    with History(checkpoint) as history:
        if as_json or not console.is_terminal:
            _lines(history, every, as_json=as_json)
        else:
            _live(history, every, console)
        return int(history.job().state in (JobState.FAILED, JobState.DEAD))


def _lines(history: History, every: float, *, as_json: bool) -> None:
    """Print a line for each point, until the job ends."""
    shown = 0
    while True:
        job, found = history.job(), history.batches(since=shown)
        # The newest point may still grow, so it is printed once the next one exists, or the job has ended.
        for batch in found[:-1] if job.state.is_alive else found:
            shown = max(shown, batch.at)
            _say({"job": job.name, **to_plain(batch)} if as_json else _line(batch))
        if not job.state.is_alive:
            state = f"{printable(job.name)}: {job.state}"
            _say({"job": job.name, "state": job.state.value} if as_json else state)
            return
        time.sleep(every)


def _say(line: dict[str, Any] | str) -> None:
    if isinstance(line, str):
        say(line, flush=True)
    else:
        print(json.dumps(line), flush=True)


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
    """Draw the job's metrics as they are now."""
    latest = history.latest()
    recent = [] if latest is None else history.batches(since=latest.at - _VERDICT_MS)
    found = verdicts(recent)
    rates = Text(f"events/s     {sparks([each.read_per_second for each in recent])}", "cyan")
    marks = Text(f"watermark    {sparks([each.behind_seconds or 0.0 for each in recent])}", "cyan")
    parts = Group(header(job, latest), rates, marks, verdict_table(found))
    return Panel(parts, title=cell(f"{job.name}: {worst(found).value}"))


def sparks(values: list[float]) -> str:
    """Draw values as a line of bars, the last ones if there are too many."""
    recent = values[-_WIDTH:]
    most = max(recent, default=0.0)
    if most <= 0:
        return _SPARKS[0] * len(recent)
    return "".join(_SPARKS[round(max(value, 0) / most * (len(_SPARKS) - 1))] for value in recent)
