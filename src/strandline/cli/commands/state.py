"""Declare the `strandline state` commands."""

from pathlib import Path
from typing import Annotated

import typer

state_app = typer.Typer(name="state", help="Query a job's state, also while it runs.", no_args_is_help=True)

FolderArgument = Annotated[Path, typer.Argument(help="The job's folder.")]
BatchOption = Annotated[int | None, typer.Option(help="Read the state after this batch. Default: the last one.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@state_app.command("show")
def state_show(
    checkpoint: FolderArgument,
    step: Annotated[int | None, typer.Option(help="Only this keyed step, by its number in `explain`.")] = None,
    key: Annotated[str | None, typer.Option(help="Show the open windows of this key; commas separate columns.")] = None,
    window: Annotated[str | None, typer.Option(help="Show the open windows that contain this instant.")] = None,
    batch: BatchOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the size of the state, or open windows. Shows rows, bytes and oldest window by step and key group."""
    from strandline.cli.actions.state import run_show

    raise typer.Exit(run_show(checkpoint, step=step, key=key, window=window, batch=batch, as_json=as_json))


@state_app.command("sql")
def state_sql(
    checkpoint: FolderArgument,
    query: Annotated[str, typer.Argument(help="The query; the tables are step_0, step_1, … and slices.")],
    batch: BatchOption = None,
    as_json: JsonOption = False,
) -> None:
    """Query the state in SQL. Open windows are tables."""

    from strandline.cli.actions.state import run_sql

    raise typer.Exit(run_sql(checkpoint, query, batch=batch, as_json=as_json))
