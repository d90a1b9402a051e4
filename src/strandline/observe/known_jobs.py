"""List the jobs of this machine: a file in the user's data, to which every start adds its folder."""

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
    """A job's folder, and its pipeline's location if known, from which its dead letters can be redriven."""

    folder: str
    pipeline: str | None = None
    started_in: str = ""
    """The folder that the pipeline's relative paths start at."""
    at: int = 0


def user_data() -> Path:
    """Strandline's folder in the user's data."""
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "strandline"


def register() -> Path:
    """The file of known jobs: STRANDLINE_JOBS, or one in the user's data."""
    chosen = os.environ.get(VARIABLE)
    return Path(chosen) if chosen else user_data() / "jobs.json"


def known_jobs(file: Path | None = None) -> list[KnownJob]:
    """The jobs whose folders still exist, last started first."""
    started = reversed(_read(file or register()))
    return [job for job in started if os.path.isfile(Path(job.folder) / "strandline.json")]  # noqa: PTH113 - False if unreadable


def jobs_of_this_machine(places: Sequence[str | Path]) -> list[Path]:
    """The folders of jobs that were started on this machine, last started first, and of jobs found in these places."""
    started = [Path(job.folder) for job in known_jobs()]
    return [*started, *(folder for folder in find_jobs(places) if folder.absolute() not in started)]


def remember(folder: Path, pipeline: str | None = None, file: Path | None = None) -> None:
    """Add a job; do nothing where the file cannot be written.

    A start without a pipeline location keeps a location that is already known.
    """
    place = file or register()
    if pipeline is not None:
        where, colon, name = pipeline.partition(":")
        pipeline = f"{Path(where).absolute()}{colon}{name}" if where.endswith(".py") else pipeline
    job = KnownJob(str(folder.absolute()), pipeline, str(Path.cwd()), time.time_ns() // 1_000_000)
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _locked(place):
            known = _read(place)
            others = [each for each in known if each.folder != job.folder and Path(each.folder).is_dir()]
            same = next((each for each in known if each.folder == job.folder and pipeline is None), job)
            job = replace(same, at=job.at)
            _write(place, [*others, job][-MOST:])
    except OSError:
        return


def is_temporary(folder: Path) -> bool:
    """Whether a job's folder is temporary, so that it need not be listed."""
    return folder.is_relative_to(Path(tempfile.gettempdir()).absolute())


def _read(file: Path) -> list[KnownJob]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        return [_job(each) for each in content["jobs"]] if content["format"] == FORMAT else []
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def _job(table: dict[str, Any]) -> KnownJob:
    names = {each.name for each in fields(KnownJob)}
    return KnownJob(**{name: each for name, each in table.items() if name in names})


def _write(file: Path, jobs: Sequence[KnownJob]) -> None:
    draft = file.with_suffix(".tmp")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as written:
        json.dump({"format": FORMAT, "jobs": [asdict(job) for job in jobs]}, written, indent=2)
    draft.replace(file)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    handle = os.open(file.parent, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
