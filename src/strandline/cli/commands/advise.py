"""Declare `strandline advise`."""

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
    time: Annotated[str | None, typer.Option(help="The event time column; a pipeline names its own.")] = None,
    key: Annotated[list[str] | None, typer.Option(help="A key column; may be repeated.")] = None,
    arrival: Annotated[
        str | None, typer.Option(help="The arrival time column. Default for a topic: the record timestamp.")
    ] = None,
    partition: Annotated[str | None, typer.Option(help="The column with the partition, for files.")] = None,
    of: Annotated[str | None, typer.Option(help="The source to sample if a pipeline has several.")] = None,
    bootstrap: Annotated[str, typer.Option(help="The bootstrap servers of the topic.")] = "localhost:9092",
    format: Annotated[str, typer.Option(help="The format of the topic: json, avro, protobuf or csv.")] = "json",  # noqa: A002
    schema: Annotated[
        str | None, typer.Option(help="The columns of the records as DDL, or a schema file: FILE.avsc, FILE.proto.")
    ] = None,
    subject: Annotated[
        str | None, typer.Option(help="The subject of the schema in the registry. Default: TOPIC-value.")
    ] = None,
    message: Annotated[str | None, typer.Option(help="The message of a Protobuf schema.")] = None,
    registry: Annotated[str | None, typer.Option(help="The address of the schema registry.")] = None,
    security: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=VALUE, may be repeated: mechanism, user, password, token_url, over_tls, authority, "
            "certificate. Give a password as env:NAME or file:PATH."
        ),
    ] = None,
    registry_security: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE for the registry: user, password, token (env:NAME or file:PATH), ca."),
    ] = None,
    freshness: Annotated[str | None, typer.Option(help="The age that a result may have: 1h, 5m, 10s.")] = None,
    window: Annotated[str | None, typer.Option(help="The window size. Default: a proposed one.")] = None,
    sample: Annotated[int, typer.Option(min=1, help="Maximum number of rows to sample.")] = 200_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the lateness curve into this file, FILE.svg.")] = None,
) -> None:
    """Recommend settings from a sample of your data.

    Recommends watermark delay, trigger and windows, or a batch job if a stream is not worth its cost.

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
