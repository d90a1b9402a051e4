"""Every column that is read is there, and of a type that fits."""

from strandline.errors import InvalidStep
from strandline.model import ddl
from strandline.model.aggregates import BitAnd, BitOr, BitXor, Mean, Quantile, StdDev, Sum, Variance
from strandline.model.aggregates import columns_of as read_by
from strandline.model.windows import Custom, GapColumn, Session
from strandline.plan.columns import Columns, columns_after
from strandline.plan.nodes import Aggregated, EventTime, Node, Root, Stateless, Union, walk
from strandline.plan.stateless_operations import Polars, Select, Sql

_NUMERIC = (Sum, Mean, Variance, StdDev, Quantile, BitAnd, BitOr, BitXor)


def refuse_columns(root: Root) -> Root:
    """Names and types, as far as they are known before Spark looks at an expression."""
    for node in walk(root):
        match node:
            case EventTime(of, str() as column, _):
                kind = _need(column, columns_after(of), of)
                if not ddl.is_time(kind):
                    raise InvalidStep(
                        f"the event time {column!r} is a {kind}",
                        hint=f'make it a timestamp first, as in with_columns({column}="timestamp_millis({column})")',
                    )
            case Aggregated():
                _check_step(node, columns_after(node.of))
            case Union(streams):
                _check_union(streams)
            case Stateless(of, Select(columns, _)):
                _check_names(columns)
            case _:
                pass
    return root


def _check_step(node: Aggregated, known: Columns) -> None:
    for key in node.keys:
        kind = _need(key, known, node.of)
        if kind is not None and kind.startswith(("array", "map", "struct", "binary")):
            raise InvalidStep(f"the key {key!r} is a {kind}", hint="key by texts, numbers or times")
    for name, aggregate in node.step.aggregates:
        for column in read_by(aggregate):
            kind = _need(column, known, node.of)
            if isinstance(aggregate, _NUMERIC) and not ddl.is_number(kind) and kind != "boolean":
                raise InvalidStep(
                    f"{name!r} computes with {column!r}, which is a {kind}", hint="choose a column of numbers"
                )
    match node.step.window:
        case Session(GapColumn(column)):
            _need(column, known, node.of)
        case Custom(start, end):
            _need(start, known, node.of)
            _need(end, known, node.of)
    clash = sorted({name for name, _ in node.step.aggregates} & set(node.keys))
    if clash:
        raise InvalidStep(f"{clash[0]!r} is both a key and an aggregate", hint="give the aggregate another name")


def _need(column: str, known: Columns, of: Node) -> str | None:
    if column not in known:
        raise InvalidStep(
            f"{_origin(of)} has no column {column!r}",
            detail=f"it has {', '.join(known)}",
            hint="check the name",
        )
    return known[column]


def _origin(node: Node) -> str:
    """Where a column should have come from, in words."""
    match node:
        case EventTime(of):
            return _origin(of)
        case Stateless():
            return "the step before"
        case Union():
            return "the union"
        case Aggregated():
            return f"a pane of {node.name}"
        case _:
            return getattr(getattr(node, "source", None), "name", "the stream")


def _check_union(streams: tuple[Node, ...]) -> None:
    first = columns_after(streams[0])
    for stream in streams[1:]:
        other = columns_after(stream)
        if set(other) != set(first):
            different = ", ".join(sorted(set(first) ^ set(other)))
            raise InvalidStep(
                "the streams of a union have different columns",
                detail=f"only some have {different}",
                hint="select the same columns of each",
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
            raise InvalidStep(f"the column {name!r} starts with @", hint="those names are Strandline's own")
