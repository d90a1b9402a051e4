"""Declare the `strandline checkpoint` commands."""

from pathlib import Path
from typing import Annotated

import typer

checkpoint_app = typer.Typer(
    name="checkpoint", help="Check a job's folder for damage, and repair it.", no_args_is_help=True
)

FolderArgument = Annotated[Path, typer.Argument(help="The job's folder.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@checkpoint_app.command("check")
def checkpoint_check(checkpoint: FolderArgument, as_json: JsonOption = False) -> None:
    """List damaged files. These are torn, empty, missing, stray or foreign; exit 1 if the job cannot resume."""
    from strandline.cli.actions.checkpoint import run_check

    raise typer.Exit(run_check(checkpoint, as_json=as_json))


@checkpoint_app.command("repair")
def checkpoint_repair(
    checkpoint: FolderArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Apply safe repairs. Damaged files are moved aside; exit 1 if the job still cannot resume."""
    from strandline.cli.actions.checkpoint import run_repair

    raise typer.Exit(run_repair(checkpoint, yes=yes, as_json=as_json))
