"""Load a pipeline from a file or module, run it, and show its progress: `strandline run`."""

import importlib
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from strandline.cli.config import settings
from strandline.cli.live_view import LiveView, PlainView, View
from strandline.cli.terminal import safe_console, say_lines
from strandline.errors import SetupError
from strandline.observe.known_jobs import remember
from strandline.observe.number_format import conserved
from strandline.plan.compile import to_stages
from strandline.plan.pipeline import Pipeline
from strandline.spark.job import Job


def run(where: str, *, checkpoint: Path | None, plain: bool, every: str | None = None, **asked: Any) -> int:
    """Run the pipeline to its end or until Ctrl-C; the next start resumes it."""
    configured = settings()
    folder = checkpoint or configured.value("run.checkpoint")
    if folder is None:
        raise SetupError(
            "the job has no folder", hint="give --checkpoint FOLDER, or set run.checkpoint in strandline.toml"
        )
    options = {**configured.options(), **({} if every is None else {"every": every}), **asked}
    pipeline = find(where)
    remember(Path(folder), where)
    return run_pipeline(pipeline, where, checkpoint=Path(folder), plain=plain, **options)


def run_pipeline(pipeline: Pipeline, where: str, *, checkpoint: Path, plain: bool, **options: Any) -> int:
    """Run a loaded pipeline with the given options, and show its progress."""
    console = safe_console()
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
    end = "All input was read" if ended else "Stopped; run the same command to resume"
    console.print(f"{end}: {conserved(job.counts)}.", highlight=False, soft_wrap=True, markup=False)
    return 0


def explain(where: str, *, as_json: bool = False) -> int:
    """Print the stages that would run."""
    pipeline = find(where)
    if as_json:
        print(json.dumps(_stages(pipeline), indent=2))
    else:
        say_lines(pipeline.explain())
    return 0


def _stages(pipeline: Pipeline) -> dict[str, Any]:
    """Return the stages as plain values, and as text."""
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
    """Load the pipeline at `file.py:name` or `package.module:name`; the default name is `pipeline`."""
    place, _, name = where.partition(":")
    found = getattr(_module(place), name or "pipeline", None)
    if not isinstance(found, Pipeline):
        what = "nothing" if found is None else f"a {type(found).__name__}"
        raise SetupError(
            f"{where} is not a pipeline",
            detail=f"{name or 'pipeline'} is {what}",
            hint="assign a pipeline, with its write(…), to a name at module level, and give that name after a colon",
        )
    return found


def function_at(where: str) -> Callable[..., Any]:
    """Load the function at `file.py:name` or `package.module:name`."""
    place, _, name = where.partition(":")
    found = getattr(_module(place), name, None) if name else None
    if not callable(found):
        raise SetupError(f"{where} is not a function", hint="give its name after a colon, as in job.py:migrate")
    return found  # type: ignore[no-any-return]


def _module(place: str) -> Any:
    path = Path(place)
    if path.suffix != ".py":
        try:
            sys.path.insert(0, str(Path.cwd()))
            return importlib.import_module(place)
        except ModuleNotFoundError as problem:
            raise SetupError(
                f"there is no module {place}", detail=str(problem), hint="give a file, as in job.py"
            ) from None
        finally:
            sys.path.pop(0)
    if not path.is_file():
        raise SetupError(f"there is no file {place}", hint="check the path")
    # Workers import the file's functions by its module name, so its folder must be on the path.
    sys.path.insert(0, str(path.absolute().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None  # noqa: S101 - a .py file has a loader
    assert spec.loader is not None  # noqa: S101
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
