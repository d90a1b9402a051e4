"""Declare `strandline savepoint`, `plan` and `lineage`."""

from pathlib import Path
from typing import Annotated

import typer

savepoint_app = typer.Typer(name="savepoint", help="Create, inspect and restore savepoints.", no_args_is_help=True)

PipelineArgument = Annotated[str, typer.Argument(help="The pipeline: file.py:name or package.module:name.")]
SavepointArgument = Annotated[Path, typer.Argument(help="The folder of a savepoint.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@savepoint_app.command("create")
def savepoint_create(
    checkpoint: Annotated[Path, typer.Argument(help="The job's folder; the job may be running.")],
    to: Annotated[Path, typer.Option(help="The new folder; its last part becomes the savepoint's name.")],
    batch: Annotated[
        int | None, typer.Option(help="An earlier batch that is still kept. Default: the last one.")
    ] = None,
) -> None:
    """Create a savepoint of a job. Writes its state and source positions to a folder; the job may be running."""
    from strandline.cli.actions.savepoint import run_create

    raise typer.Exit(run_create(checkpoint, to, batch=batch))


@savepoint_app.command("list")
def savepoint_list(
    folder: Annotated[Path, typer.Argument(help="A folder that contains savepoints.")], as_json: JsonOption = False
) -> None:
    """List the savepoints in a folder, oldest first."""
    from strandline.cli.actions.savepoint import run_list

    raise typer.Exit(run_list(folder, as_json=as_json))


@savepoint_app.command("show")
def savepoint_show(savepoint: SavepointArgument, as_json: JsonOption = False) -> None:
    """Print and verify a savepoint. Shows its job, positions and contents; exit 2 if a file is damaged."""
    from strandline.cli.actions.savepoint import run_show

    raise typer.Exit(run_show(savepoint, as_json=as_json))


@savepoint_app.command("restore")
def savepoint_restore(
    savepoint: SavepointArgument,
    pipeline: PipelineArgument,
    checkpoint: Annotated[Path, typer.Option(help="The folder of the new job; it is created.")],
    fork: Annotated[bool, typer.Option("--fork", help="Start another job, with its own outputs.")] = False,
    partitions: Annotated[int | None, typer.Option(min=1, help="A new number of partitions.")] = None,
    key_groups: Annotated[int | None, typer.Option(min=1, help="A new number of key groups.")] = None,
    migrate: Annotated[str | None, typer.Option(help="A function that migrates state: file.py:name.")] = None,
) -> None:
    """Create a job from a savepoint. `strandline run` then resumes from there."""
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
    savepoint: SavepointArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete a savepoint permanently."""
    from strandline.cli.actions.savepoint import run_delete

    raise typer.Exit(run_delete(savepoint, yes=yes))


def plan(
    pipeline: PipelineArgument,
    checkpoint: Annotated[Path, typer.Option(help="The folder of the existing job, or of a savepoint of it.")],
    as_json: JsonOption = False,
) -> None:
    """Compare a pipeline with existing state. Exit 0 if a job can resume with it, 1 if not; nothing runs."""
    from strandline.cli.actions.savepoint import run_plan

    raise typer.Exit(run_plan(pipeline, checkpoint, as_json=as_json))


def lineage(
    folder: Annotated[Path, typer.Argument(help="The folder of a job, or of a savepoint.")], as_json: JsonOption = False
) -> None:
    """Print the ancestors of a job. They are the savepoints, versions and positions its output was made from."""
    from strandline.cli.actions.savepoint import run_lineage

    raise typer.Exit(run_lineage(folder, as_json=as_json))
