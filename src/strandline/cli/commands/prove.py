"""Declare the `strandline prove` commands."""

from pathlib import Path
from typing import Annotated

import typer

prove_app = typer.Typer(
    name="prove", help="Verify delivery guarantees by killing jobs, in a checkout.", no_args_is_help=True
)


@prove_app.callback()
def prove_options() -> None:
    """Verify delivery guarantees by killing jobs, in a checkout."""


@prove_app.command()
def delivery(  # noqa: PLR0913, PLR0917 - one option each
    sink: Annotated[
        list[str] | None,
        typer.Option(
            help="sqlite, postgres, kafka, delta, duckdb or folder; may be repeated. Default: the first four."
        ),
    ] = None,
    semantics: Annotated[
        list[str] | None, typer.Option(help="A delivery, such as exactly_once; may be repeated. Default: all.")
    ] = None,
    kills: Annotated[int | None, typer.Option(min=1, help="How many times a real job is killed.")] = None,
    seed: Annotated[int, typer.Option(help="Seed; the same seed gives the same events and the same kills.")] = 1,
    bug: Annotated[str | None, typer.Option(help="Inject this bug, and check that the proof detects it.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    campaign: Annotated[
        bool,
        typer.Option("--campaign", help="Run everything, keep it in benchmarks/results, resume after an interrupt."),
    ] = False,
    without_spark: Annotated[
        bool, typer.Option("--without-spark", help="Kill processes in which a fake replaces Spark: faster.")
    ] = False,
    work: Annotated[
        Path | None, typer.Option(help="The folder for a campaign's rounds. Default: a cache folder.")
    ] = None,
) -> None:
    """Kill jobs and verify each delivery. Kills happen at every point of a batch; losses and duplicates are counted."""
    from strandline.cli.actions.prove import prove_delivery

    chosen = {"sinks": sink or [], "semantics": semantics or [], "kills": kills, "seed": seed, "bug": bug}
    raise typer.Exit(prove_delivery(chosen, as_json=as_json, campaign=campaign, spark=not without_spark, work=work))
