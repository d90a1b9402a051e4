"""The words about jobs, wherever they run: they are seen, and asked, through their folders."""

from pathlib import Path
from typing import Annotated

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]
CheckpointArgument = Annotated[Path, typer.Argument(help="The job's folder, given to it as checkpoint.")]
WaitOption = Annotated[float, typer.Option(min=0, help="Seconds to wait until it has ended; 0 does not wait.")]


def jobs(
    folders: Annotated[list[Path] | None, typer.Argument(help="Where to look; else as configured, else here.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the jobs below some folders and how each is.

    Example: `strandline jobs /data/jobs`
    """
    from strandline.cli.actions.jobs import run_jobs

    raise typer.Exit(run_jobs(folders or [], as_json=as_json))


def watch(
    checkpoint: CheckpointArgument,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="A line of JSON for each batch, or for a few.")] = False,
) -> None:
    """Watch a job that runs anywhere. Ctrl-C ends the watching only.

    Example: `strandline watch /data/jobs/scores`
    """
    from strandline.cli.watch_view import run_watch

    raise typer.Exit(run_watch(checkpoint, every=every, as_json=as_json))


def stop(checkpoint: CheckpointArgument, wait: WaitOption = 60.0, as_json: JsonOption = False) -> None:
    """Stop a job that runs anywhere. The next run goes on from there.

    Example: `strandline stop /data/jobs/scores`
    """
    from strandline.cli.actions.ask import run_ask

    raise typer.Exit(run_ask(checkpoint, "stop", wait=wait, as_json=as_json))


def drain(checkpoint: CheckpointArgument, wait: WaitOption = 60.0, as_json: JsonOption = False) -> None:
    """End a job's input: every window closes and speaks, then it ends.

    Example: `strandline drain /data/jobs/scores`
    """
    from strandline.cli.actions.ask import run_ask

    raise typer.Exit(run_ask(checkpoint, "drain", wait=wait, as_json=as_json))


def init(
    name: Annotated[str, typer.Argument(help="The folder to make.")],
) -> None:
    """Make a project folder: a pipeline, a story that tests it, a config.

    Example: `strandline init scores`
    """
    from strandline.cli.actions.init import run_init

    raise typer.Exit(run_init(name))


WORDS = (jobs, watch, stop, drain, init)

config_app = typer.Typer(name="config", help="What is configured, and where it was said.", no_args_is_help=True)
alarms_app = typer.Typer(name="alarms", help="Alarms: what rings, and who would hear of it.", no_args_is_help=True)


@config_app.callback()
def config_options() -> None:
    """What is configured."""


@config_app.command("show")
def config_show(as_json: JsonOption = False) -> None:
    """Print every setting as it is in effect here, with its source; secrets are masked.

    Example: `strandline config show`
    """
    from strandline.cli.config import run_show

    raise typer.Exit(run_show(as_json=as_json))


@alarms_app.command("test")
def alarms_test(
    file: Annotated[Path | None, typer.Argument(help="A file of alarms; else as configured.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Tell everyone a trial alarm, and say who took it.

    Example: `strandline alarms test alarms.toml`
    """
    from strandline.cli.actions.alarms import run_test

    raise typer.Exit(run_test(file, as_json=as_json))


@alarms_app.command("show")
def alarms_show(
    checkpoint: CheckpointArgument,
    file: Annotated[Path | None, typer.Option("--rules", help="Judge by these rules, not by those of the job.")] = None,
    as_json: JsonOption = False,
) -> None:
    """How each alarm of a job stands; exit code 1 if one rings.

    Example: `strandline alarms show /data/jobs/scores`
    """
    from strandline.cli.actions.alarms import run_show

    raise typer.Exit(run_show(checkpoint, file, as_json=as_json))
