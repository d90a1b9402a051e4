"""The words of `strandline checkpoint`, and their options."""

from pathlib import Path
from typing import Annotated

import typer

checkpoint_app = typer.Typer(
    name="checkpoint", help="A job's folder: what is damaged in it, and what can be mended.", no_args_is_help=True
)

FolderArgument = Annotated[Path, typer.Argument(help="The job's folder.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]


@checkpoint_app.command("check")
def checkpoint_check(checkpoint: FolderArgument, as_json: JsonOption = False) -> None:
    """Each file that is torn, empty, missing, stray or alien; exit 1 if the job cannot go on as it is."""
    from strandline.cli.actions.checkpoint import run_check

    raise typer.Exit(run_check(checkpoint, as_json=as_json))


@checkpoint_app.command("repair")
def checkpoint_repair(
    checkpoint: FolderArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Do what is provably safe; damaged files are moved aside. Exit 1 if the job still cannot go on."""
    from strandline.cli.actions.checkpoint import run_repair

    raise typer.Exit(run_repair(checkpoint, yes=yes, as_json=as_json))
