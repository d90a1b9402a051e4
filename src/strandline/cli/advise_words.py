"""The word about a stream that is still to be made: what a user's own data ask for."""

from pathlib import Path
from typing import Annotated

import typer


def advise(  # noqa: PLR0913, PLR0917 - one option each
    source: Annotated[str, typer.Argument(help="A file or folder of Parquet, JSON lines or CSV; or kafka:TOPIC.")],
    time: Annotated[str, typer.Option(help="The column that says when something happened.")],
    key: Annotated[list[str] | None, typer.Option(help="A column of the key; may be given again.")] = None,
    arrival: Annotated[
        str | None, typer.Option(help="The column that says when it came; of a topic, else the record's timestamp.")
    ] = None,
    partition: Annotated[str | None, typer.Option(help="The column that says from which partition; of files.")] = None,
    bootstrap: Annotated[str, typer.Option(help="The brokers of the topic.")] = "localhost:9092",
    freshness: Annotated[str | None, typer.Option(help="How old an answer may be: 1h, 5m, 10s.")] = None,
    window: Annotated[str | None, typer.Option(help="The windows that are meant; one is proposed if not said.")] = None,
    sample: Annotated[int, typer.Option(min=1, help="How many rows are looked at, at most.")] = 200_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the lateness curve into this file, FILE.svg.")] = None,
) -> None:
    """Look at a sample of your own data: which settings are right, and is a stream worth it?

    Example: `strandline advise events/ --time at --key team --freshness 5m`
    """
    from strandline.cli.advise import run_advise

    columns = {"time": time, "keys": tuple(key or ()), "arrival": arrival, "partition": partition}
    wishes = {"freshness": freshness, "window": window}
    raise typer.Exit(run_advise(source, columns, wishes, bootstrap=bootstrap, most=sample, as_json=as_json, plot=plot))
