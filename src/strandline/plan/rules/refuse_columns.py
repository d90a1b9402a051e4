"""Refuse columns that are missing or of a wrong type."""

import re
from collections.abc import Iterable
from typing import Final

from strandline.errors import InvalidStep
from strandline.model import ddl
from strandline.model.suggestions import did_you_mean, listed
from strandline.plan.columns import PUBLIC
from strandline.plan.endpoints import Sink, WritesColumns
from strandline.plan.nodes import EventTime, KeyedNode, Node, Root, Stateless, Union, Write, walk
from strandline.plan.sql_names import columns_read
from strandline.plan.stateless_operations import Expr, Operation, Polars, Select, Sql, Where, describe

_BY_NAME: Final = re.compile(r"cs\.by_name\(('.*?'), require_all=true\)")
"""How Polars shows columns that an expression names several at a time."""


def refuse_columns(root: Root) -> Root:
    """Check the names and types of columns, as far as they are known without Spark."""
    for node in walk(root):
        match node:
            case EventTime(of, str() as column, _):
                kind = _need(column, of)
                if not ddl.is_time(kind):
                    raise InvalidStep(
                        f"the event time {column!r} is a {kind}",
                        hint=f'convert it to a timestamp, as in with_columns({column}="timestamp_millis({column})")',
                    )
            case KeyedNode():
                _check_operator(node)
            case Union(streams):
                _check_union(streams)
            case Stateless(of, Select(columns, _) as operation):
                _check_names(columns)
                _check_computed(columns, of, operation)
            case Stateless(of, Where(condition) as operation):
                _check_reads(condition, of.columns, of, operation)
            case Write(of, sink):
                _check_written(sink, of)
            case _:
                pass
    return root


def _check_operator(node: KeyedNode) -> None:
    for stream in node.streams:
        for key in stream.keys:
            kind = _need(key, stream.of)
            if kind is not None and kind.startswith(("array", "map", "struct", "binary")):
                raise InvalidStep(f"the key {key!r} is a {kind}", hint="key by strings, numbers or timestamps")
    of = node.streams[0].of
    node.plan.check_columns(lambda column: _need(column, of), node.keys)


def _need(column: str, of: Node) -> str | None:
    known = of.columns
    if column not in known:
        raise InvalidStep(
            f"{_origin(of)} has no column {column!r}",
            detail=f"it has {listed(known)}",
            hint=did_you_mean(column, known),
        )
    return known[column]


def _check_computed(columns: tuple[tuple[str, Expr], ...], of: Node, operation: Operation) -> None:
    """Check the columns that a selection reads. In SQL, a column may read those that are computed before it."""
    known = list(of.columns)
    for name, each in columns:
        _check_reads(each, known, of, operation)
        if isinstance(each, Sql):
            known.append(name)


def _check_reads(given: Expr, known: Iterable[str], of: Node, operation: Operation) -> None:
    names = list(known)
    folded = {name.lower() for name in names}
    for name in _read_by(given):
        # Spark ignores the case of names in SQL; Polars does not.
        if (name.lower() not in folded) if isinstance(given, Sql) else (name not in names):
            raise InvalidStep(
                f"{_origin(of)} has no column {name!r}",
                detail=f"«{describe(operation)}» reads it; there are {listed(names)}",
                hint=did_you_mean(name, names),
            )


def _read_by(given: Expr) -> tuple[str, ...]:
    """Return the columns that an expression surely reads; selections by type or pattern name none."""
    if isinstance(given, Sql):
        return columns_read(given.text)
    named = [each for part in _BY_NAME.findall(given.text) for each in re.findall(r"'([^']+)'", part)]
    return tuple(dict.fromkeys([*given.expression.meta.root_names(), *named]))


def _check_written(sink: Sink, of: Node) -> None:
    """Check the columns that a sink needs: its key, or the columns of its format."""
    if not isinstance(sink, WritesColumns):
        return
    known = of.columns
    for name in sink.needed_columns:
        if name not in known and name.rstrip("_") not in PUBLIC:
            raise InvalidStep(
                f"{sink.name} needs the column {name!r}, which the rows do not have",
                detail=f"the rows have {listed(known)}",
                hint=did_you_mean(name, [*known, *PUBLIC], "name another column"),
            )


def _origin(node: Node) -> str:
    """Return the name of the node that should have a missing column."""
    match node:
        case EventTime(of):
            return _origin(of)
        case Stateless():
            return "the step before"
        case Union():
            return "the union"
        case KeyedNode():
            return f"a pane of {node.name}"
        case _:
            return getattr(getattr(node, "source", None), "name", "the stream")


def _check_union(streams: tuple[Node, ...]) -> None:
    first = streams[0].columns
    for stream in streams[1:]:
        other = stream.columns
        if set(other) != set(first):
            missing = ", ".join(sorted(set(first) ^ set(other)))
            raise InvalidStep(
                "the streams of a union have different columns",
                detail=f"only some have {missing}",
                hint="select the same columns from each",
            )
        for name, kind in first.items():
            if kind is not None and other[name] is not None and kind != other[name]:
                raise InvalidStep(
                    f"the column {name!r} has different types in a union",
                    detail=f"{kind} and {other[name]}",
                    hint="cast one of them",
                )


def _check_names(columns: tuple[tuple[str, Sql | Polars], ...]) -> None:
    for name, _ in columns:
        if name.startswith("@"):
            raise InvalidStep(f"the column {name!r} starts with @", hint="names that start with @ are reserved")
