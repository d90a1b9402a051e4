"""The words of `strandline replay`; what they do is in `replay.py`, loaded when one is said."""

from pathlib import Path
from typing import Annotated

import typer

replay_app = typer.Typer(
    name="replay", help="A new version of a table, played from the log beside the live one.", no_args_is_help=True
)

Job = Annotated[str, typer.Argument(help="Where the pipeline is: file.py:name or package.module:name.")]
To = Annotated[str, typer.Argument(help="The table of the new version.")]


@replay_app.command()
def start(
    job: Job,
    since: Annotated[str, typer.Option("--from", help="A time, as 2024-05-01T00:00:00Z, or earliest.")],
    to: Annotated[str, typer.Option("--to-new-version", "--to", help="The table of the new version.")],
    checkpoint: Annotated[Path, typer.Option(help="The replay's own folder; a run that finds one there goes on.")],
    live: Annotated[
        bool, typer.Option("--live", help="Go on when the log is read, as the job that takes over.")
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Plain lines instead of a live screen.")] = False,
) -> None:
    """Play the pipeline from the log into a new table beside the live one."""
    from strandline.cli.actions.replay import run_start

    raise typer.Exit(run_start(job, since=since, to=to, checkpoint=checkpoint, live=live, plain=plain))


@replay_app.command()
def diff(
    job: Job,
    version: To,
    limit: Annotated[int, typer.Option(min=0, help="How many rows to show.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Compare what readers see with the new version, over the windows that both have closed."""
    from strandline.cli.actions.replay import run_diff

    raise typer.Exit(run_diff(job, version, limit=limit, as_json=as_json))


@replay_app.command()
def switch(job: Job, version: To) -> None:
    """Let readers of the view see the new version, all at once."""
    from strandline.cli.actions.replay import run_switch

    raise typer.Exit(run_switch(job, version))


@replay_app.command()
def drop(job: Job, version: To) -> None:
    """Throw a version away that no reader sees."""
    from strandline.cli.actions.replay import run_drop

    raise typer.Exit(run_drop(job, version))


@replay_app.command("list")
def list_(job: Job) -> None:
    """Tell which versions there are, and which one readers see."""
    from strandline.cli.actions.replay import run_list

    raise typer.Exit(run_list(job))
