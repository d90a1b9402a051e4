"""Asks a job that runs elsewhere to stop or to drain, through its folder, and waits until it has."""

import json
import time
from pathlib import Path
from typing import Final

from rich.console import Console

from strandline.errors import SetupError
from strandline.observe.job_requests import ask
from strandline.observe.metrics.history import History, JobState, JobView

_LOOK_SECONDS: Final = 0.2


def _later(history: History, wait: float) -> JobView:
    """The job once it has ended, or the time is up."""
    until = time.monotonic() + wait
    while True:
        job = history.job()
        if not job.state.is_alive or time.monotonic() >= until:
            return job
        time.sleep(_LOOK_SECONDS)


def run_ask(checkpoint: Path, what: str, *, wait: float, as_json: bool) -> int:
    """Exit code 0 if it has ended, or nobody was to wait; 1 if it still runs, failed or died."""
    with History(checkpoint) as history:
        job = history.job()
        if job.state is JobState.UNKNOWN:
            raise SetupError(
                f"{job.name} keeps no numbers, so nobody looks whether it is asked to {what}",
                hint="stop it where it runs, or run it without metrics=False",
            )
        if job.state.is_alive:
            ask(history.folder, what)
            job = _later(history, wait)
    if as_json:
        print(json.dumps({"job": job.name, "asked": what, "state": job.state.value}))
    else:
        told = f"{job.name} is asked to {what}" if job.state.is_alive else f"{job.name}: {job.state.value}"
        Console(highlight=False, soft_wrap=True).print(told)
    ended_well = job.state in (JobState.STOPPED, JobState.COMPLETE)
    return int(not ended_well and (wait > 0 or not job.state.is_alive))
