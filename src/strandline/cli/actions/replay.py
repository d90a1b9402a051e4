"""`strandline replay`: a new version of a table from the log: made beside the live one, compared, switched to."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from strandline.cli.actions.run import carry, find
from strandline.cli.config import settings
from strandline.connectors.kafka import Kafka
from strandline.connectors.sql.table_versions import Difference, SqlSink, Versions, shape_of, versioned
from strandline.errors import InvalidStep, InvalidTime
from strandline.model.elements import Timestamp, instant
from strandline.plan.endpoints import Source
from strandline.plan.nodes import Write
from strandline.plan.pipeline import Pipeline
from strandline.plan.replay import only_output, replayed

SAME, DIFFERENT = 0, 1
EARLIEST: Final = "earliest"


def run_start(where: str, *, since: str, to: str, checkpoint: Path, live: bool, plain: bool) -> int:
    """Plays the pipeline from the log into a new table, up to now; or on and on, as the job that is to take over."""
    pipeline = find(where)
    write, sink = _written(pipeline)
    at = since_of(since)
    again = replayed(write, lambda source: _rewound(source, at), versioned(sink, to), at)
    with _versions(write, sink) as versions:
        versions.begin(to, at)
    options = {**settings().options(), "available_now": not live}
    return carry(Pipeline(again, pipeline.runner), f"{where} → {to}", checkpoint=checkpoint, plain=plain, **options)


def run_diff(where: str, to: str, *, limit: int, as_json: bool) -> int:
    """What readers see now against what they would see: 1 if it differs."""
    write, sink = _written(find(where))
    with _versions(write, sink) as versions:
        found = versions.difference(to, limit=limit)
    (_tell_json if as_json else _tell)(found)
    return SAME if found.is_none else DIFFERENT


def run_switch(where: str, to: str) -> int:
    """Readers see the new version, all at once."""
    write, sink = _written(find(where))
    with _versions(write, sink) as versions:
        versions.switch(to)
    print(f"{sink.table.name}_current shows {to}")
    return 0


def run_drop(where: str, to: str) -> int:
    """Throws a version away."""
    write, sink = _written(find(where))
    with _versions(write, sink) as versions:
        versions.drop(to)
    print(f"{to} is gone; its job's folder may go too")
    return 0


def run_list(where: str) -> int:
    """The versions there are."""
    write, sink = _written(find(where))
    with _versions(write, sink) as versions:
        for name, since, current in versions.all():
            print(f"{name}  from {since}{'  current' if current else ''}")
    return 0


def since_of(text: str) -> int | None:
    """A time, or the beginning of the log."""
    if text == EARLIEST:
        return None
    try:
        at = datetime.fromisoformat(text)
        return Timestamp.from_datetime(at).ms if at.tzinfo is not None else instant(text).ms
    except (ValueError, InvalidTime):
        raise InvalidTime(
            f"{text!r} is no time to replay from", hint="write 2024-05-01T12:00:00Z, or earliest"
        ) from None


def _written(pipeline: Pipeline) -> tuple[Write, Any]:
    write = only_output(pipeline.root)
    if not isinstance(write.sink, SqlSink):
        raise InvalidStep(
            f"{write.sink.name} has no versions", hint="a replay is of a table: postgres(…), sqlite(…) or duckdb(…)"
        )
    return write, write.sink


def _rewound(source: Source, since: int | None) -> Source:
    """From the beginning of what the log still holds, or from a time on; other sources begin with all they have."""
    return source.since(since) if isinstance(source, Kafka) else source


@contextmanager
def _versions(write: Write, sink: Any) -> Iterator[Versions]:
    versions = Versions(sink.database(), sink.table, shape_of(write, sink.table))
    try:
        yield versions
    finally:
        versions.close()


def _tell(found: Difference) -> None:
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"{found.compared} rows compared: {found.only_live} only live, {found.only_new} only new, "
        f"{found.changed} changed" + (f"; {found.beyond} of windows not yet closed by both" if found.beyond else "")
    )
    for what, row in found.examples:
        console.print(f"  {what}: {', '.join(f'{name} {value}' for name, value in row.items())}")


def _tell_json(found: Difference) -> None:
    told = {
        "compared": found.compared, "only_live": found.only_live, "only_new": found.only_new, "changed": found.changed,
        "beyond": found.beyond, "examples": [{"is": what, **row} for what, row in found.examples],
    }  # fmt: skip
    print(json.dumps(told, default=str))
