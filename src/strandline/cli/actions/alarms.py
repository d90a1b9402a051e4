"""Alarms from outside: tries whether everyone would hear of one, and tells how those of a job stand."""

import json
import time
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.text import Text

from strandline.cli.config import settings
from strandline.errors import SetupError, StrandlineError
from strandline.observe.alarms.alarm_file import read_alarms
from strandline.observe.alarms.notify import Message
from strandline.observe.alarms.watch import judge, line_of
from strandline.observe.metrics.history import History, JobState, JobView
from strandline.observe.metrics.tables import AlarmLine


def run_test(file: Path | None, *, as_json: bool) -> int:
    """Tells a trial alarm to everyone; exit code 1 if someone did not take it."""
    named = file or settings().value("run.alarms")
    if named is None:
        raise SetupError("no file of alarms is named", hint="name one, or set run.alarms in strandline.toml")
    alarms, found = read_alarms(Path(named)), []
    trial = Message("trial", "trial", "firing", "this is a trial, nothing is wrong", "", time.time_ns() // 1_000_000)
    for each in alarms.notifiers:
        try:
            each.send(trial)
            found.append((each.name, ""))
        except StrandlineError as problem:
            found.append((each.name, str(problem)))
    if as_json:
        print(json.dumps([{"told": name, "problem": problem} for name, problem in found], indent=2))
        return int(any(problem for _, problem in found))
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{len(alarms.rules)} rules: {', '.join(rule.name for rule in alarms.rules)}")
    for name, why in found:
        console.print(Text(f"{name}: {why or 'took it'}", "red" if why else "green"))
    if not found:
        console.print(Text("They are told to the log only: add [[tell]] to the file."))
    return int(any(problem for _, problem in found))


def run_show(checkpoint: Path, file: Path | None, *, as_json: bool) -> int:
    """Prints how each stands; exit code 1 if one rings. A job that is gone cannot ring itself, so that is seen too."""
    now = time.time_ns() // 1_000_000
    with History(checkpoint) as history:
        lines = [*_gone(history.job(now), now), *(history.alarms() if file is None else ())]
    if file is not None:
        lines += [line_of(each) for each in judge(checkpoint, read_alarms(file).rules, now)]
    if as_json:
        print(json.dumps([asdict(each) for each in lines], indent=2))
    else:
        console = Console(highlight=False, soft_wrap=True)
        for each in lines:
            colour = {"firing": "red", "pending": "yellow"}.get(each.state, "green")
            why = f": {each.text}. Hint: {each.hint}" if each.state != "ok" else ""
            console.print(Text.assemble((each.state, colour), f"  {each.rule}{why}"))
        if not lines:
            console.print("No alarm was looked at yet.")
    return int(any(each.state == "firing" for each in lines))


def _gone(job: JobView, now: int) -> list[AlarmLine]:
    """An alarm for a job that failed or died."""
    if job.state not in (JobState.FAILED, JobState.DEAD):
        return []
    text = job.problem or f"it gives no sign of life since process {job.pid} on {job.host}"
    return [AlarmLine("gone", "firing", job.heartbeat or now, text, "start it again: it goes on where it was", 1)]
