"""The word about a stream that is still to be made: what a user's own data ask for."""

from pathlib import Path
from typing import Annotated

import typer


def advise(  # noqa: PLR0913, PLR0917 - one option each
    source: Annotated[
        str,
        typer.Argument(
            help="A file or folder of Parquet, JSON lines or CSV; kafka:TOPIC; or a pipeline, FILE|MODULE:NAME."
        ),
    ],
    time: Annotated[
        str | None, typer.Option(help="The column that says when something happened; a pipeline says it itself.")
    ] = None,
    key: Annotated[list[str] | None, typer.Option(help="A column of the key; may be given again.")] = None,
    arrival: Annotated[
        str | None, typer.Option(help="The column that says when it came; of a topic, else the record's timestamp.")
    ] = None,
    partition: Annotated[str | None, typer.Option(help="The column that says from which partition; of files.")] = None,
    of: Annotated[str | None, typer.Option(help="Which source of a pipeline, if it has several.")] = None,
    bootstrap: Annotated[str, typer.Option(help="The brokers of the topic.")] = "localhost:9092",
    format: Annotated[str, typer.Option(help="The topic's records: json, avro, protobuf or csv.")] = "json",  # noqa: A002
    schema: Annotated[
        str | None, typer.Option(help="The records' columns as DDL, or a file: FILE.avsc, FILE.proto.")
    ] = None,
    subject: Annotated[str | None, typer.Option(help="The schema's subject in the registry; else TOPIC-value.")] = None,
    message: Annotated[str | None, typer.Option(help="Which message of a Protobuf schema.")] = None,
    registry: Annotated[str | None, typer.Option(help="The address of the schema registry.")] = None,
    security: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=VALUE, may be given again: mechanism, user, password, token_url, over_tls, authority, "
            "certificate; a password as env:NAME or file:PATH."
        ),
    ] = None,
    registry_security: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE of the registry: user, password, token (by reference), ca.")
    ] = None,
    freshness: Annotated[str | None, typer.Option(help="How old an answer may be: 1h, 5m, 10s.")] = None,
    window: Annotated[str | None, typer.Option(help="The windows that are meant; one is proposed if not said.")] = None,
    sample: Annotated[int, typer.Option(min=1, help="How many rows are looked at, at most.")] = 200_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the lateness curve into this file, FILE.svg.")] = None,
) -> None:
    """Look at a sample of your own data: which settings are right, and is a stream worth it?

    Example: `strandline advise events/ --time at --key team --freshness 5m`
    """
    from strandline.advise.sample import Columns
    from strandline.advise.topic_access import Access
    from strandline.cli.actions.advise import run_advise

    columns = Columns(time or "", tuple(key or ()), arrival, partition)
    access = Access(
        bootstrap, format, schema, subject, message, registry, tuple(security or ()), tuple(registry_security or ())
    )
    wishes = {"freshness": freshness, "window": window}
    raise typer.Exit(run_advise(source, columns, wishes, access, of=of, most=sample, as_json=as_json, plot=plot))
