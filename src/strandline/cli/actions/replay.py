"""Rebuild a table from the log beside the live one, compare the two, and switch: `strandline replay`."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from strandline.cli.actions.run import find, run_pipeline
from strandline.cli.config import settings
from strandline.cli.terminal import printable, say
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
    """Run the pipeline over the log into a new table: up to now, or with `live` continuously, to take over."""
    pipeline = find(where)
    write, sink = _output_of(pipeline)
    at = since_of(since)
    again = replayed(write, lambda source: _starting_at(source, at), versioned(sink, to), at)
    with _versions(write, sink) as versions:
        versions.begin(to, at)
    options = {**settings().options(), "available_now": not live}
    return run_pipeline(
        Pipeline(again, pipeline.runner), f"{where} → {to}", checkpoint=checkpoint, plain=plain, **options
    )


def run_diff(where: str, to: str, *, limit: int, as_json: bool) -> int:
    """Print the differences between the current and the new version; return 1 if there are any."""
    write, sink = _output_of(find(where))
    with _versions(write, sink) as versions:
        found = versions.difference(to, limit=limit)
    (_print_json if as_json else _print_difference)(found)
    return SAME if found.is_none else DIFFERENT


def run_switch(where: str, to: str) -> int:
    """Switch the view to the new version, atomically."""
    write, sink = _output_of(find(where))
    with _versions(write, sink) as versions:
        versions.switch(to)
    say(f"{sink.table.name}_current shows {to}")
    return 0


def run_drop(where: str, to: str) -> int:
    """Delete a version."""
    write, sink = _output_of(find(where))
    with _versions(write, sink) as versions:
        versions.drop(to)
    say(f"{to} is dropped; you may delete the folder of its job too")
    return 0


def run_list(where: str) -> int:
    """Print the versions."""
    write, sink = _output_of(find(where))
    with _versions(write, sink) as versions:
        for name, since, current in versions.all():
            say(f"{name}  from {since}{'  current' if current else ''}")
    return 0


def since_of(text: str) -> int | None:
    """Parse a start time; `earliest` is None, the beginning of the log."""
    if text == EARLIEST:
        return None
    try:
        at = datetime.fromisoformat(text)
        return Timestamp.from_datetime(at).ms if at.tzinfo is not None else instant(text).ms
    except (ValueError, InvalidTime):
        raise InvalidTime(f"{text!r} is not a start time", hint="write 2024-05-01T12:00:00Z, or earliest") from None


def _output_of(pipeline: Pipeline) -> tuple[Write, Any]:
    write = only_output(pipeline.root)
    if not isinstance(write.sink, SqlSink):
        raise InvalidStep(
            f"{write.sink.name} has no versions", hint="replay writes a table: postgres(…), sqlite(…) or duckdb(…)"
        )
    return write, write.sink


def _starting_at(source: Source, since: int | None) -> Source:
    """Start a Kafka source at a time, or at the earliest offset; other sources start with all of their data."""
    return source.since(since) if isinstance(source, Kafka) else source


@contextmanager
def _versions(write: Write, sink: Any) -> Iterator[Versions]:
    versions = Versions(sink.database(), sink.table, shape_of(write, sink.table))
    try:
        yield versions
    finally:
        versions.close()


def _print_difference(found: Difference) -> None:
    say(
        f"{found.compared} rows compared: {found.only_live} only live, {found.only_new} only new, "
        f"{found.changed} changed" + (f"; {found.beyond} of windows not yet closed by both" if found.beyond else "")
    )
    for what, row in found.examples:
        say(printable(f"  {what}: {', '.join(f'{name} {value}' for name, value in row.items())}"))


def _print_json(found: Difference) -> None:
    fields = {
        "compared": found.compared, "only_live": found.only_live, "only_new": found.only_new, "changed": found.changed,
        "beyond": found.beyond, "examples": [{"is": what, **row} for what, row in found.examples],
    }  # fmt: skip
    print(json.dumps(fields, default=str))
