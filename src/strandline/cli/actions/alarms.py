"""Send a test alarm to every notification channel, and print the state of a job's alarms: `strandline alarms`."""

import json
import time
from dataclasses import asdict
from pathlib import Path

from rich.text import Text

from strandline.cli.config import settings
from strandline.cli.terminal import cell, plain_console, printable
from strandline.errors import SetupError, StrandlineError
from strandline.observe.alarms.alarm_file import read_alarms
from strandline.observe.alarms.notify import Message
from strandline.observe.alarms.watch import judge, line_of
from strandline.observe.metrics.history import History, JobState, JobView
from strandline.observe.metrics.tables import AlarmLine


def run_test(file: Path | None, *, as_json: bool) -> int:
    """Send a test alarm to every channel; return 1 if a channel did not accept it."""
    named = file or settings().value("run.alarms")
    if named is None:
        raise SetupError("no alarm file is given", hint="name one, or set run.alarms in strandline.toml")
    alarms, found = read_alarms(Path(named)), []
    trial = Message(
        "trial", "trial", "firing", "this is a test alarm, nothing is wrong", "", time.time_ns() // 1_000_000
    )
    for each in alarms.notifiers:
        try:
            each.send(trial)
            found.append((each.name, ""))
        except StrandlineError as problem:
            found.append((each.name, str(problem)))
    if as_json:
        print(json.dumps([{"told": name, "problem": problem} for name, problem in found], indent=2))
        return int(any(problem for _, problem in found))
    console = plain_console()
    console.print(f"{len(alarms.rules)} rules: {', '.join(rule.name for rule in alarms.rules)}")
    for name, why in found:
        console.print(cell(f"{name}: {why or 'accepted'}", "red" if why else "green"))
    if not found:
        console.print("Alarms go to the log only: add [[tell]] to the file.")
    return int(any(problem for _, problem in found))


def run_show(checkpoint: Path, file: Path | None, *, as_json: bool) -> int:
    """Print the state of each alarm; return 1 if one is firing.

    A dead job cannot report itself, so its death is checked here.
    """
    now = time.time_ns() // 1_000_000
    with History(checkpoint) as history:
        lines = [*_gone(history.job(now), now), *(history.alarms() if file is None else ())]
    if file is not None:
        lines += [line_of(each) for each in judge(checkpoint, read_alarms(file).rules, now)]
    if as_json:
        print(json.dumps([asdict(each) for each in lines], indent=2))
    else:
        console = plain_console()
        for each in lines:
            colour = {"firing": "red", "pending": "yellow"}.get(each.state, "green")
            why = f": {each.text}. Hint: {each.hint}" if each.state != "ok" else ""
            console.print(Text.assemble((each.state, colour), printable(f"  {each.rule}{why}")))
        if not lines:
            console.print("No alarm has been evaluated yet.")
    return int(any(each.state == "firing" for each in lines))


def _gone(job: JobView, now: int) -> list[AlarmLine]:
    """Return an alarm for a job that failed or died."""
    if job.state not in (JobState.FAILED, JobState.DEAD):
        return []
    text = job.problem or f"no heartbeat from process {job.pid} on {job.host}"
    return [AlarmLine("gone", "firing", job.heartbeat or now, text, "start it again: it resumes where it stopped", 1)]
