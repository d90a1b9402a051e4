"""Declare the `strandline replay` commands."""

from pathlib import Path
from typing import Annotated

import typer

replay_app = typer.Typer(
    name="replay", help="Rebuild a table from the log. Compare it, then switch to it.", no_args_is_help=True
)

Job = Annotated[str, typer.Argument(help="The pipeline: file.py:name or package.module:name.")]
To = Annotated[str, typer.Argument(help="The table of the new version.")]


@replay_app.command()
def start(
    job: Job,
    since: Annotated[str, typer.Option("--from", help="A time such as 2024-05-01T00:00:00Z, or earliest.")],
    to: Annotated[str, typer.Option("--to-new-version", "--to", help="The table of the new version.")],
    checkpoint: Annotated[Path, typer.Option(help="The replay's own folder; an existing replay resumes.")],
    live: Annotated[
        bool, typer.Option("--live", help="Keep running after the log is read, to take over from the live job.")
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Print plain lines instead of a live screen.")] = False,
) -> None:
    """Rebuild the table from the log. Writes a new table beside the live one."""
    from strandline.cli.actions.replay import run_start

    raise typer.Exit(run_start(job, since=since, to=to, checkpoint=checkpoint, live=live, plain=plain))


@replay_app.command()
def diff(
    job: Job,
    version: To,
    limit: Annotated[int, typer.Option(min=0, help="Maximum number of rows to print.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare the current and the new version. Covers the windows that both have closed; exit 1 if they differ."""
    from strandline.cli.actions.replay import run_diff

    raise typer.Exit(run_diff(job, version, limit=limit, as_json=as_json))


@replay_app.command()
def switch(job: Job, version: To) -> None:
    """Switch the view to the new version, atomically."""
    from strandline.cli.actions.replay import run_switch

    raise typer.Exit(run_switch(job, version))


@replay_app.command()
def drop(job: Job, version: To) -> None:
    """Delete a version that the view does not show."""
    from strandline.cli.actions.replay import run_drop

    raise typer.Exit(run_drop(job, version))


@replay_app.command("list")
def list_(job: Job) -> None:
    """List the versions and mark the one that the view shows."""
    from strandline.cli.actions.replay import run_list

    raise typer.Exit(run_list(job))
