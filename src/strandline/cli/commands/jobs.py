"""Declare the commands that inspect and control jobs through their folders, wherever the jobs run."""

from pathlib import Path
from typing import Annotated

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
CheckpointArgument = Annotated[Path, typer.Argument(help="The job's folder: the checkpoint of its run.")]
WaitOption = Annotated[float, typer.Option(min=0, help="Seconds to wait for the job to end; 0 does not wait.")]


def jobs(
    folders: Annotated[
        list[Path] | None, typer.Argument(help="Folders to search. Default: the configured ones, else this one.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the jobs in some folders with their state.

    Example: `strandline jobs /data/jobs`
    """
    from strandline.cli.actions.jobs import run_jobs

    raise typer.Exit(run_jobs(folders or [], as_json=as_json))


def watch(
    checkpoint: CheckpointArgument,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two updates.")] = 1.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON for each batch or few batches.")
    ] = False,
) -> None:
    """Watch a job, wherever it runs. Ctrl-C ends the watching, not the job.

    Example: `strandline watch /data/jobs/scores`
    """
    from strandline.cli.watch_view import run_watch

    raise typer.Exit(run_watch(checkpoint, every=every, as_json=as_json))


def stop(checkpoint: CheckpointArgument, wait: WaitOption = 60.0, as_json: JsonOption = False) -> None:
    """Stop a job, wherever it runs. The next run resumes it.

    Example: `strandline stop /data/jobs/scores`
    """
    from strandline.cli.actions.ask import run_ask

    raise typer.Exit(run_ask(checkpoint, "stop", wait=wait, as_json=as_json))


def drain(checkpoint: CheckpointArgument, wait: WaitOption = 60.0, as_json: JsonOption = False) -> None:
    """Drain a job. Its input ends, every window closes and emits its results, then the job ends.

    Example: `strandline drain /data/jobs/scores`
    """
    from strandline.cli.actions.ask import run_ask

    raise typer.Exit(run_ask(checkpoint, "drain", wait=wait, as_json=as_json))


def init(
    name: Annotated[str, typer.Argument(help="The folder to create.")],
) -> None:
    """Create a project folder. It holds a pipeline, a story that tests it and a configuration.

    Example: `strandline init scores`
    """
    from strandline.cli.actions.init import run_init

    raise typer.Exit(run_init(name))


JOB_COMMANDS = (jobs, watch, stop, drain, init)

config_app = typer.Typer(name="config", help="Print the configuration and its sources.", no_args_is_help=True)
alarms_app = typer.Typer(name="alarms", help="Test and show alarms.", no_args_is_help=True)


@config_app.callback()
def config_options() -> None:
    """Print the configuration and its sources."""


@config_app.command("show")
def config_show(as_json: JsonOption = False) -> None:
    """Print every setting that is in effect here, with its source. Secrets are masked.

    Example: `strandline config show`
    """
    from strandline.cli.config import run_show

    raise typer.Exit(run_show(as_json=as_json))


@alarms_app.command("test")
def alarms_test(
    file: Annotated[Path | None, typer.Argument(help="A file of alarms. Default: the configured one.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Send a test alarm to every notification channel, and report which of them accepted it.

    Example: `strandline alarms test alarms.toml`
    """
    from strandline.cli.actions.alarms import run_test

    raise typer.Exit(run_test(file, as_json=as_json))


@alarms_app.command("show")
def alarms_show(
    checkpoint: CheckpointArgument,
    file: Annotated[Path | None, typer.Option("--rules", help="Evaluate these rules, not those of the job.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the state of each alarm of a job; exit 1 if an alarm is firing.

    Example: `strandline alarms show /data/jobs/scores`
    """
    from strandline.cli.actions.alarms import run_show

    raise typer.Exit(run_show(checkpoint, file, as_json=as_json))
