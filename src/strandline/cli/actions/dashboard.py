"""`strandline dashboard`: the jobs of this machine in the browser, until Ctrl-C."""

import signal
import threading
import webbrowser
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from strandline.cli.config import settings
from strandline.dashboard.dead_letter_queries import OpenedLetters
from strandline.dashboard.graph import read_definition
from strandline.errors import SetupError
from strandline.observe.known_jobs import jobs_of_this_machine, known_jobs
from strandline.observe.metrics.history import find_jobs
from strandline.plan.compile import to_stages
from strandline.plan.nodes import Root

try:
    from strandline.dashboard.server import Dashboard, Options
except ModuleNotFoundError as missing:
    raise SetupError(
        f"the dashboard needs {missing.name}, which is not installed", hint='type: pip install "strandline[dashboard]"'
    ) from None


def run(places: Sequence[Path], *, pipelines: Sequence[str], open_browser: bool, **options: Any) -> None:
    """Serves until it is interrupted; a link that was used is followed by the next one."""
    console = Console(highlight=False, soft_wrap=True)
    for place in places:
        if not place.exists():
            raise SetupError(f"there is no folder {place}", hint="name a job's folder, or one that jobs lie in")
    shown: list[Dashboard] = []

    def tell() -> None:
        console.print(f"For another browser: {shown[0].url}")

    ways = Ways(pipelines)
    dashboard = Dashboard(lambda: folders(places), Options(**options), open_pipeline=ways.back, used=tell)
    shown.append(dashboard)
    ended = threading.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: ended.set())
    with dashboard:
        console.print(f"Open this once: {dashboard.url}\nCtrl-C ends it; jobs go on without it.")
        if open_browser:
            webbrowser.open(dashboard.url)
        ended.wait()


def folders(places: Iterable[Path]) -> list[Path]:
    """The folders of jobs in these places; if none is named, of those started here, and in the folders configured."""
    chosen = [*places]
    if chosen:
        return find_jobs(chosen)
    # The usual one, wherever one is, may hold anything: it is not searched again and again.
    return jobs_of_this_machine([each for each in settings().value("jobs.folders") if str(each) != "."])


class Ways:
    """The way back of dead letters: by the pipeline that a job was started from, or by one that was named."""

    def __init__(self, pipelines: Sequence[str] = ()) -> None:
        self._named = {to_stages(root := _find(each)).fingerprint: root for each in pipelines}
        self._found: dict[Path, Root | None] = {}

    def back(self, folder: Path) -> OpenedLetters | None:
        """Where the letters of a job are and what takes them back; None if its pipeline is not known."""
        if folder not in self._found:
            self._found[folder] = self._root(folder)
        root = self._found[folder]
        return None if root is None else _opened(root)

    def _root(self, folder: Path) -> Root | None:
        fingerprint = read_definition(folder).fingerprint
        if fingerprint in self._named:
            return self._named[fingerprint]
        job = next((job for job in known_jobs() if Path(job.folder) == folder.absolute()), None)
        # Relative paths in a pipeline begin where it was started: from elsewhere they would mean other files.
        if job is None or job.pipeline is None or Path(job.started_in) != Path.cwd():
            return None
        root = _find(job.pipeline)
        return root if to_stages(root).fingerprint == fingerprint else None


def beside(folder: Path, root: Root, used: Callable[[], None]) -> Dashboard:
    """A dashboard for one job, in this process, at a port that is free."""
    return Dashboard(
        lambda: find_jobs([folder]),
        Options(port=0),
        open_pipeline=lambda _: _opened(root),
        used=used,
    )


# What follows needs the engine, which is most of a dashboard's memory: it is loaded for those who need it.


def _find(pipeline: str) -> Root:
    from strandline.cli.actions.run import find

    return find(pipeline).root


def _opened(root: Root) -> OpenedLetters:
    from strandline.cli.actions.dlq import sources_of, stores_of

    return OpenedLetters(stores_of(root), sources_of(root))
