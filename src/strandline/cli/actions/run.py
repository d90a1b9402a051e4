"""Runs a pipeline that a file or a module defines, and shows it as it runs."""

import importlib
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from strandline.cli.config import settings
from strandline.cli.live_view import LiveView, PlainView, View
from strandline.errors import SetupError
from strandline.observe.known_jobs import remember
from strandline.observe.number_format import conserved
from strandline.plan.compile import to_stages
from strandline.plan.pipeline import Pipeline
from strandline.spark.job import Job


def run(where: str, *, checkpoint: Path | None, plain: bool, every: str | None = None, **asked: Any) -> int:
    """Runs to the end, or until Ctrl-C; the next start goes on from there."""
    configured = settings()
    folder = checkpoint or configured.value("run.checkpoint")
    if folder is None:
        raise SetupError("the job has no folder", hint="give --checkpoint FOLDER, or run.checkpoint in strandline.toml")
    options = {**configured.options(), **({} if every is None else {"every": every}), **asked}
    pipeline = find(where)
    remember(Path(folder), where)
    return carry(pipeline, where, checkpoint=Path(folder), plain=plain, **options)


def carry(pipeline: Pipeline, where: str, *, checkpoint: Path, plain: bool, **options: Any) -> int:
    """The same of a pipeline that is there, with the options of its run."""
    console = Console()
    view: View = (PlainView if plain or not console.is_terminal else LiveView)(console, where)
    view.say(f"Starting Spark; the job is kept in {checkpoint}")
    job: Job = pipeline.run(checkpoint=checkpoint, listener=view.delivered, **options)
    try:
        ended = job.await_end()
    except KeyboardInterrupt:
        job.stop()
        ended = False
    finally:
        view.close()
    end = "It has read all there is" if ended else "Stopped; the same command goes on from here"
    console.print(f"{end}: {conserved(job.counts)}.", highlight=False, soft_wrap=True)
    return 0


def explain(where: str, *, as_json: bool = False) -> int:
    """Prints the stages that would run."""
    pipeline = find(where)
    print(json.dumps(_told(pipeline), indent=2) if as_json else pipeline.explain())
    return 0


def _told(pipeline: Pipeline) -> dict[str, Any]:
    """The stages as plain values, and as they are printed."""
    stages = to_stages(pipeline.root)
    return {
        "fingerprint": stages.fingerprint,
        "sources": [scan.source.name for scan in stages.scans],
        "steps": [
            {"name": step.name, "level": step.level, "keys": list(step.keys), "window": step.plan.describe()}
            for step in stages.steps
        ],
        "sinks": [
            {"name": each.sink.name, "delivery": each.delivery.value, "keys": list(each.keys or ())}
            for each in stages.outputs
        ],
        "stages": pipeline.explain().splitlines(),
    }


def find(where: str) -> Pipeline:
    """The pipeline at `file.py:name` or `package.module:name`; the name is `pipeline` unless it is said."""
    place, _, name = where.partition(":")
    found = getattr(_module(place), name or "pipeline", None)
    if not isinstance(found, Pipeline):
        what = "nothing" if found is None else f"a {type(found).__name__}"
        raise SetupError(
            f"{where} is no pipeline",
            detail=f"{name or 'pipeline'} is {what}",
            hint="give a pipeline a name at the top of the file, with its write(…), and name it behind a colon",
        )
    return found


def function_at(where: str) -> Callable[..., Any]:
    """The function at `file.py:name` or `package.module:name`."""
    place, _, name = where.partition(":")
    found = getattr(_module(place), name, None) if name else None
    if not callable(found):
        raise SetupError(f"{where} is no function", hint="name it behind a colon, as in job.py:migrate")
    return found  # type: ignore[no-any-return]


def _module(place: str) -> Any:
    path = Path(place)
    if path.suffix != ".py":
        try:
            sys.path.insert(0, str(Path.cwd()))
            return importlib.import_module(place)
        except ModuleNotFoundError as problem:
            raise SetupError(
                f"there is no module {place}", detail=str(problem), hint="name a file, as in job.py"
            ) from None
        finally:
            sys.path.pop(0)
    if not path.is_file():
        raise SetupError(f"there is no file {place}", hint="check the path")
    # Workers import functions of the file by its name, so its folder must be known to them too.
    sys.path.insert(0, str(path.absolute().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None  # noqa: S101 - a .py file has a loader
    assert spec.loader is not None  # noqa: S101
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
