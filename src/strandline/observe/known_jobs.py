"""Which jobs there are on this machine: a small file among the user's data, to which every start adds its folder."""

import fcntl
import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from strandline.observe.metrics.history import find_jobs

VARIABLE: Final = "STRANDLINE_JOBS"
FORMAT: Final = 1
MOST: Final = 500


@dataclass(frozen=True, slots=True)
class KnownJob:
    """A job's folder, and where its pipeline is written if that is known: from there its dead letters can go back."""

    folder: str
    pipeline: str | None = None
    started_in: str = ""
    """The folder that relative paths of the pipeline begin at."""
    at: int = 0


def user_data() -> Path:
    """Where Strandline keeps what is the user's."""
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "strandline"


def register() -> Path:
    """The file of known jobs: STRANDLINE_JOBS, or one among the user's data."""
    chosen = os.environ.get(VARIABLE)
    return Path(chosen) if chosen else user_data() / "jobs.json"


def known_jobs(file: Path | None = None) -> list[KnownJob]:
    """The jobs whose folders are still there, those that started last first."""
    started = reversed(_read(file or register()))
    return [job for job in started if os.path.isfile(Path(job.folder) / "strandline.json")]  # noqa: PTH113 - False if unreadable


def jobs_of_this_machine(places: Sequence[str | Path]) -> list[Path]:
    """The folders of the jobs that were started here, those that started last first, and of those in some places."""
    started = [Path(job.folder) for job in known_jobs()]
    return [*started, *(folder for folder in find_jobs(places) if folder.absolute() not in started)]


def remember(folder: Path, pipeline: str | None = None, file: Path | None = None) -> None:
    """Adds a job. Only a convenience: where nothing can be written, it is done without.

    Who starts a job without saying where its pipeline is written takes nothing from what is known of it.
    """
    place = file or register()
    if pipeline is not None:
        where, colon, name = pipeline.partition(":")
        pipeline = f"{Path(where).absolute()}{colon}{name}" if where.endswith(".py") else pipeline
    job = KnownJob(str(folder.absolute()), pipeline, str(Path.cwd()), time.time_ns() // 1_000_000)
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _alone(place):
            known = _read(place)
            others = [each for each in known if each.folder != job.folder and Path(each.folder).is_dir()]
            same = next((each for each in known if each.folder == job.folder and pipeline is None), job)
            job = replace(same, at=job.at)
            _write(place, [*others, job][-MOST:])
    except OSError:
        return


def is_passing(folder: Path) -> bool:
    """Whether a job lies where things are put for a while only: nobody looks for it later."""
    return folder.is_relative_to(Path(tempfile.gettempdir()).absolute())


def _read(file: Path) -> list[KnownJob]:
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
        return [_job(each) for each in told["jobs"]] if told["format"] == FORMAT else []
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def _job(told: dict[str, Any]) -> KnownJob:
    names = {each.name for each in fields(KnownJob)}
    return KnownJob(**{name: each for name, each in told.items() if name in names})


def _write(file: Path, jobs: Sequence[KnownJob]) -> None:
    draft = file.with_suffix(".tmp")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as written:
        json.dump({"format": FORMAT, "jobs": [asdict(job) for job in jobs]}, written, indent=2)
    draft.replace(file)


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    handle = os.open(file.parent, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
