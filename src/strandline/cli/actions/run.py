"""Load a pipeline from a file or module, run it, and show its progress: `strandline run`."""

import json
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
from strandline.plan.import_path import object_at
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
    console.print(_end(job, ended=ended), highlight=False, soft_wrap=True, markup=False)
    return 0


def _end(job: Job, *, ended: bool) -> str:
    """Describe how a run ended."""
    if ended and job.last is None and job.is_complete:
        return (
            f"The job in {job.folder} has ended before: nothing was read. Use another folder to read its input again."
        )
    if not ended:
        end = "Stopped; run the same command to resume"
    elif job.is_complete and job.unread:
        end = f"Drained; {job.unread} records were not read"
    else:
        end = "All input was read"
    return f"{end}: {conserved(job.counts)}."


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
    found = object_at(where, "pipeline")
    if not isinstance(found, Pipeline):
        what = "nothing" if found is None else f"a {type(found).__name__}"
        raise SetupError(
            f"{where} is not a pipeline",
            detail=f"{where.partition(':')[2] or 'pipeline'} is {what}",
            hint="assign a pipeline, with its write(…), to a name at module level, and give that name after a colon",
        )
    return found


def function_at(where: str) -> Callable[..., Any]:
    """Load the function at `file.py:name` or `package.module:name`."""
    found = object_at(where)
    if not callable(found):
        raise SetupError(f"{where} is not a function", hint="give its name after a colon, as in job.py:migrate")
    return found  # type: ignore[no-any-return]
