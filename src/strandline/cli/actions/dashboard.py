"""Serve the jobs of this machine in the browser until Ctrl-C: `strandline dashboard`."""

import signal
import threading
import webbrowser
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from strandline.cli.config import settings
from strandline.cli.terminal import plain_console
from strandline.dashboard.dead_letter_queries import OpenedLetters
from strandline.dashboard.graph import read_definition
from strandline.errors import SetupError
from strandline.observe.known_jobs import jobs_of_this_machine, known_jobs
from strandline.observe.metrics.history import find_jobs
from strandline.plan.compile import to_stages
from strandline.plan.nodes import Root
from strandline.plan.refinement.inherited import as_stored

try:
    from strandline.dashboard.server import Dashboard, Options
except ModuleNotFoundError as missing:
    raise SetupError(
        f"the dashboard needs {missing.name}, which is not installed", hint='type: pip install "strandline[dashboard]"'
    ) from None


def run(places: Sequence[Path], *, pipelines: Sequence[str], open_browser: bool, **options: Any) -> None:
    """Serve until interrupted; print a new link each time one is used."""
    console = plain_console()
    for place in places:
        if not place.exists():
            raise SetupError(f"there is no folder {place}", hint="name a job's folder, or a folder that contains jobs")
    started: list[Dashboard] = []

    def print_link() -> None:
        console.print(f"For another browser: {started[0].url}")

    redrives = RedrivePipelines(pipelines)
    dashboard = Dashboard(lambda: folders(places), Options(**options), open_pipeline=redrives.open, used=print_link)
    started.append(dashboard)
    ended = threading.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: ended.set())
    with dashboard:
        console.print(f"Open this link, once: {dashboard.url}\nCtrl-C ends the dashboard; jobs keep running.")
        if open_browser:
            webbrowser.open(dashboard.url)
        ended.wait()


def folders(places: Iterable[Path]) -> list[Path]:
    """Return the job folders in these places; without places, the jobs started here and those in configured folders."""
    chosen = [*places]
    if chosen:
        return find_jobs(chosen)
    # The default folder "." may hold anything, so it is not searched again at every refresh.
    return jobs_of_this_machine([each for each in settings().value("jobs.folders") if str(each) != "."])


class RedrivePipelines:
    """Find the pipeline that redrives a job's dead letters: one given by option, or the one that started the job."""

    def __init__(self, pipelines: Sequence[str] = ()) -> None:
        self._named = [_find(each) for each in pipelines]
        self._found: dict[Path, Root | None] = {}

    def open(self, folder: Path) -> OpenedLetters | None:
        """Return a job's letter stores and sources; None if its pipeline is not known."""
        if folder not in self._found:
            self._found[folder] = self._root(folder)
        root = self._found[folder]
        return None if root is None else _opened(root)

    def _root(self, folder: Path) -> Root | None:
        fingerprint = read_definition(folder).fingerprint
        for root in self._named:
            if (found := _made_by(root, fingerprint)) is not None:
                return found
        job = next((job for job in known_jobs() if Path(job.folder) == folder.absolute()), None)
        # Relative paths in a pipeline start at the folder it was started in; elsewhere they would mean other files.
        if job is None or job.pipeline is None or Path(job.started_in) != Path.cwd():
            return None
        return _made_by(_find(job.pipeline), fingerprint)


def _made_by(root: Root, fingerprint: str) -> Root | None:
    """Return a pipeline as a folder with this fingerprint holds it; None if the folder is of another pipeline."""
    stored = as_stored(root, fingerprint)
    return stored if to_stages(stored).fingerprint == fingerprint else None


def single_job_dashboard(folder: Path, root: Root, used: Callable[[], None]) -> Dashboard:
    """Return a dashboard for one job, in this process, on a free port."""
    return Dashboard(
        lambda: find_jobs([folder]),
        Options(port=0),
        open_pipeline=lambda _: _opened(root),
        used=used,
    )


# The functions below import the engine, most of a dashboard's memory, so it is loaded only when they are called.


def _find(pipeline: str) -> Root:
    from strandline.cli.actions.run import find

    return find(pipeline).root


def _opened(root: Root) -> OpenedLetters:
    from strandline.cli.actions.dlq import sources_of, stores_of

    return OpenedLetters(stores_of(root), sources_of(root))
