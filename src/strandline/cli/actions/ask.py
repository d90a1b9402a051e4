"""Ask a running job to stop or drain through its folder, and wait for it to end."""

import json
import time
from pathlib import Path
from typing import Final

from strandline.cli.terminal import printable, say
from strandline.errors import SetupError
from strandline.observe.job_requests import ask
from strandline.observe.metrics.history import History, JobState, JobView

_POLL_SECONDS: Final = 0.2


def _await_end(history: History, wait: float) -> JobView:
    """Return the job once it has ended or the time is up."""
    until = time.monotonic() + wait
    while True:
        job = history.job()
        if not job.state.is_alive or time.monotonic() >= until:
            return job
        time.sleep(_POLL_SECONDS)


def run_ask(checkpoint: Path, what: str, *, wait: float, as_json: bool) -> int:
    """Return 0 if the job ended well or no wait was requested, 1 if it still runs, failed or died."""
    with History(checkpoint) as history:
        job = history.job()
        if job.state is JobState.UNKNOWN:
            raise SetupError(
                f"{job.name} writes no metrics, so it does not look for a request to {what}",
                hint="stop it where it runs, or run it without metrics=False",
            )
        if job.state.is_alive:
            ask(history.folder, what)
            job = _await_end(history, wait)
    if as_json:
        print(json.dumps({"job": job.name, "asked": what, "state": job.state.value, "problem": job.problem}))
    else:
        text = f"{job.name} was asked to {what}" if job.state.is_alive else f"{job.name}: {job.state.value}"
        say(printable(f"{text}: {job.problem}" if job.problem else text))
    ended_well = job.state in (JobState.STOPPED, JobState.COMPLETE)
    return int(not ended_well and (wait > 0 or not job.state.is_alive))
