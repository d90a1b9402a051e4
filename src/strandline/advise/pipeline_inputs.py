"""Sample a pipeline's own source, with the event time, keys, window and delay that the pipeline defines.

The source is read with its own format and access. Python operations before the event time are applied; SQL runs only
in Spark, which is not started here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl

from strandline.advise.file_sample import tail_of_files
from strandline.advise.sample import DECODED, Columns, Origin, SampledSource, left_out, sample_of
from strandline.advise.topic_sample import SENT, decoded, tail_of
from strandline.connectors.files.source import Files
from strandline.connectors.kafka.source import Kafka
from strandline.errors import InvalidStep
from strandline.execution.stateless_steps import run_operations
from strandline.kernel.blocks.block import PARTITION
from strandline.kernel.stateless_steps import PROBLEM
from strandline.model.steps import WindowedStep
from strandline.model.watermarks import Bounded, Watermark
from strandline.model.windows import Tumbling
from strandline.plan.compile import paths_into
from strandline.plan.endpoints import Source
from strandline.plan.lineage import LineagePath
from strandline.plan.nodes import KeyedNode, Read, Root, Write, outputs_of, walk
from strandline.plan.salting import SALT
from strandline.plan.stateless_operations import Operation, Select, Spread, Sql, Where, describe, is_native


@dataclass(frozen=True, slots=True)
class SourceUse:
    """A source of a pipeline, and how the pipeline uses it."""

    source: Source
    path: LineagePath
    time: str
    keys: tuple[str, ...] = ()
    window: int | None = None

    @property
    def delay(self) -> int | None:
        rule = None if self.path.time is None else self.path.time.watermark
        generator = rule.generator if isinstance(rule, Watermark) else None
        return generator.delay.ms if isinstance(generator, Bounded) else None


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of a source, and notes about them."""

    rows: pl.DataFrame
    name: str
    arrival: str = ""
    notes: tuple[str, ...] = ()
    known: tuple[str, ...] = ()


def sample_of_pipeline(root: Root, where: str, columns: Columns, most: int, of: str | None = None) -> SampledSource:
    """Sample the pipeline's source with its own event time and keys; columns given by name take precedence."""
    use = source_of(root, of)
    found = _read(use.source, most)
    keys = columns.keys or use.keys
    before = [each for each in use.path.before if not isinstance(each, Spread)]
    after = [each for each in use.path.after if not isinstance(each, Spread)]
    time = columns.time or use.time
    rows, notes = _after(found.rows, before)
    if not {*keys} <= {*rows.columns}:
        rows, more = _after(rows, after, time)
        notes += more
    _refuse_sql([time, *keys], rows, [*before, *after])
    own = (SENT, PARTITION) if isinstance(use.source, Kafka) else (None, None)
    chosen = Columns(time, keys, columns.arrival or own[0], columns.partition or own[1])
    arrival = found.arrival if columns.arrival is None else f"the column {columns.arrival!r}"
    origin = Origin(found.name, "", arrival, (*found.notes, *notes), DECODED, where)
    delay = use.delay if time == use.time else None
    return SampledSource(sample_of(rows, chosen, origin), found.known, use.window, delay)


def source_of(root: Root, of: str | None = None) -> SourceUse:
    """Return the selected source and how its first step uses it; a salted step as the user wrote it."""
    found: dict[tuple[str, str], SourceUse] = {}
    nodes: list[KeyedNode | Write] = [each for each in walk(root) if isinstance(each, KeyedNode)]
    for node in [*nodes, *outputs_of(root)]:
        for path in paths_into(node):
            if not isinstance(path.origin, Read) or path.time is None or path.time.column is None:
                continue
            source = path.origin.source
            use = SourceUse(source, path, path.time.column)
            if isinstance(node, KeyedNode):
                window = node.operator.window if isinstance(node.operator, WindowedStep) else None
                size = window.size.ms if isinstance(window, Tumbling) else None
                use = replace(use, keys=tuple(name for name in node.keys if name != SALT), window=size)
            found.setdefault((source.name, use.time), use)
    selected = [each for each in found.values() if of is None or of in each.source.name]
    if len(selected) == 1:
        return selected[0]
    names = ", ".join(f"{each.source.name} by {each.time}" for each in found.values())
    if not found:
        raise InvalidStep("no source of the pipeline has an event time", hint="give it one with event_time(…)")
    if not selected:
        raise InvalidStep(f"no source of the pipeline is called {of!r}", detail=f"it has {names}")
    raise InvalidStep("the pipeline has several sources", detail=names, hint="choose one with --of NAME")


def _read(source: Source, most: int) -> _Rows:
    if isinstance(source, Kafka):
        tail = tail_of(source, most)
        arrived = decoded(source, tail)
        notes = (*tail.notes, *left_out(arrived, "records"))
        return _Rows(arrived.rows, source.name, tail.arrival, notes, tail.known)
    if isinstance(source, Files):
        arrived, notes = tail_of_files(source, most)
        return _Rows(arrived.rows, source.name, "", (*notes, *left_out(arrived, "lines")))
    raise InvalidStep(
        f"{source.name} cannot be sampled", hint="copy some of it to a folder of Parquet, and give that to advise"
    )


def _after(rows: pl.DataFrame, operations: Sequence[Operation], time: str = "") -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Apply Python operations to rows; return notes about what Spark would do. The time column stays."""
    notes: list[str] = []
    for operation in operations:
        if is_native(operation):
            rows = _renamed(rows, operation)
            if isinstance(operation, Where):
                notes.append(f"«{describe(operation)}» runs in Spark: rows that it removes are in the sample")
            continue
        passed = run_operations(rows, [operation])
        failed = 0 if passed.failed is None else passed.failed.height
        if failed:
            assert passed.failed is not None  # noqa: S101 - counted above
            note = f"«{describe(operation)}» fails for {failed} of {rows.height} rows: {passed.failed[PROBLEM][0]}"
            if passed.rows.is_empty():
                raise InvalidStep(note, hint="SQL before it is not run here; give --time and --key other columns")
            notes.append(note)
        if passed.filtered:
            notes.append(f"«{describe(operation)}» removes {passed.filtered} of {rows.height} rows")
        rows = _with_time(passed.rows, rows, time)
    return rows, tuple(notes)


def _with_time(rows: pl.DataFrame, before: pl.DataFrame, time: str) -> pl.DataFrame:
    """Restore the event time column if a selection after event_time dropped it."""
    if not time or time in rows.columns or rows.height != before.height:
        return rows
    return rows.with_columns(before[time])


def _renamed(rows: pl.DataFrame, operation: Operation) -> pl.DataFrame:
    """Apply SQL that only renames columns; drop columns that SQL computes, since their values are unknown."""
    if not isinstance(operation, Select):
        return rows
    plain = {name: each.text.strip("`") for name, each in operation.columns if isinstance(each, Sql)}
    renamed = [pl.col(text).alias(name) for name, text in plain.items() if text in rows.columns]
    computed = [name for name, text in plain.items() if text not in rows.columns]
    if operation.beside:
        return rows.with_columns(renamed).drop(computed, strict=False)
    return rows.select(pl.col("^@.*$"), *renamed)


def _refuse_sql(wanted: list[str], rows: pl.DataFrame, operations: Sequence[Operation]) -> None:
    for name in wanted:
        computing = next((each for each in operations if is_native(each) and name in _computed(each)), None)
        if name not in rows.columns and computing is not None:
            raise InvalidStep(
                f"the column {name!r} is computed by SQL, which runs only in Spark",
                detail=f"by «{describe(computing)}»",
                hint="give other columns with --time and --key, or write it in Polars",
            )


def _computed(operation: Operation) -> set[str]:
    return {name for name, _ in operation.columns} if isinstance(operation, Select) else set()
