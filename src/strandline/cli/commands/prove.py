"""The words of `strandline prove`."""

from pathlib import Path
from typing import Annotated

import typer

prove_app = typer.Typer(
    name="prove", help="Prove, in a checkout: what is promised holds, whatever is killed.", no_args_is_help=True
)


@prove_app.callback()
def prove_options() -> None:
    """Proves, in a checkout: what is promised holds, whatever is killed."""


@prove_app.command()
def delivery(  # noqa: PLR0913, PLR0917 - one option each
    sink: Annotated[
        list[str] | None,
        typer.Option(
            help="sqlite, postgres, kafka, delta, duckdb or folder; may be given again; the first four if not."
        ),
    ] = None,
    semantics: Annotated[
        list[str] | None, typer.Option(help="A delivery, such as exactly_once; may be given again; all if not.")
    ] = None,
    kills: Annotated[int | None, typer.Option(min=1, help="How often a real job is killed.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same events and the same kills.")] = 1,
    bug: Annotated[str | None, typer.Option(help="Make this mistake on purpose, and see it caught.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    campaign: Annotated[
        bool,
        typer.Option("--campaign", help="All of it, kept in benchmarks/results; goes on where it was interrupted."),
    ] = False,
    without_spark: Annotated[
        bool, typer.Option("--without-spark", help="Kill processes in which a stand-in does Spark's part: faster.")
    ] = False,
    work: Annotated[Path | None, typer.Option(help="Where a campaign keeps its rounds; a cache otherwise.")] = None,
) -> None:
    """Kill real jobs at every point of a batch: what each delivery loses, what it repeats, and what it must not."""
    from strandline.cli.actions.prove import prove_delivery

    chosen = {"sinks": sink or [], "semantics": semantics or [], "kills": kills, "seed": seed, "bug": bug}
    raise typer.Exit(prove_delivery(chosen, as_json=as_json, campaign=campaign, spark=not without_spark, work=work))
