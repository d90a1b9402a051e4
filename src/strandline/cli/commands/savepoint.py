"""The words of `strandline savepoint`, `plan` and `lineage`, and their options."""

from pathlib import Path
from typing import Annotated

import typer

savepoint_app = typer.Typer(
    name="savepoint", help="Savepoints: a job at the end of a batch, as a folder to go on from.", no_args_is_help=True
)

PipelineArgument = Annotated[str, typer.Argument(help="Where it is: file.py:name or package.module:name.")]
SavepointArgument = Annotated[Path, typer.Argument(help="The folder of a savepoint.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]


@savepoint_app.command("create")
def savepoint_create(
    checkpoint: Annotated[Path, typer.Argument(help="The job's folder; the job may be running.")],
    to: Annotated[Path, typer.Option(help="The new folder; its last part is the savepoint's name.")],
    batch: Annotated[
        int | None, typer.Option(help="An earlier batch that is still kept; the last if not said.")
    ] = None,
) -> None:
    """Write a job's state and positions into a folder, without stopping it."""
    from strandline.cli.actions.savepoint import run_create

    raise typer.Exit(run_create(checkpoint, to, batch=batch))


@savepoint_app.command("list")
def savepoint_list(
    folder: Annotated[Path, typer.Argument(help="A folder with savepoints in it.")], as_json: JsonOption = False
) -> None:
    """The savepoints in a folder, oldest first."""
    from strandline.cli.actions.savepoint import run_list

    raise typer.Exit(run_list(folder, as_json=as_json))


@savepoint_app.command("show")
def savepoint_show(savepoint: SavepointArgument, as_json: JsonOption = False) -> None:
    """One savepoint: whose it is, where it stands, what it holds, and whether it is whole; exit 2 if it is not."""
    from strandline.cli.actions.savepoint import run_show

    raise typer.Exit(run_show(savepoint, as_json=as_json))


@savepoint_app.command("restore")
def savepoint_restore(
    savepoint: SavepointArgument,
    pipeline: PipelineArgument,
    checkpoint: Annotated[Path, typer.Option(help="The new job's folder, which is made.")],
    fork: Annotated[bool, typer.Option("--fork", help="As another job, with outputs of its own.")] = False,
    partitions: Annotated[int | None, typer.Option(min=1, help="Another number of partitions.")] = None,
    key_groups: Annotated[int | None, typer.Option(min=1, help="Another number of key groups.")] = None,
    migrate: Annotated[str | None, typer.Option(help="A function for state that does not fit: file.py:name.")] = None,
) -> None:
    """Make a new job's folder from a savepoint; `strandline run` then goes on from there."""
    from strandline.cli.actions.savepoint import run_restore

    raise typer.Exit(
        run_restore(
            savepoint,
            pipeline,
            checkpoint=checkpoint,
            fork=fork,
            partitions=partitions,
            key_groups=key_groups,
            migrate=migrate,
        )
    )


@savepoint_app.command("delete")
def savepoint_delete(
    savepoint: SavepointArgument, yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False
) -> None:
    """Delete a savepoint for good."""
    from strandline.cli.actions.savepoint import run_delete

    raise typer.Exit(run_delete(savepoint, yes=yes))


def plan(
    pipeline: PipelineArgument,
    checkpoint: Annotated[Path, typer.Option(help="The folder of the job as it was, or of a savepoint of it.")],
    as_json: JsonOption = False,
) -> None:
    """Compare a definition with the state of an older one: exit 0 if it can go on, 1 if not, before anything runs."""
    from strandline.cli.actions.savepoint import run_plan

    raise typer.Exit(run_plan(pipeline, checkpoint, as_json=as_json))


def lineage(
    folder: Annotated[Path, typer.Argument(help="The folder of a job, or of a savepoint.")], as_json: JsonOption = False
) -> None:
    """Tell which savepoints, versions and positions a job's output was made from."""
    from strandline.cli.actions.savepoint import run_lineage

    raise typer.Exit(run_lineage(folder, as_json=as_json))
