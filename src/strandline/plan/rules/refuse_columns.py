"""Refuse columns that are missing or of a wrong type."""

from strandline.errors import InvalidStep
from strandline.model import ddl
from strandline.plan.nodes import EventTime, KeyedNode, Node, Root, Stateless, Union, walk
from strandline.plan.stateless_operations import Polars, Select, Sql


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
            case Stateless(_, Select(columns, _)):
                _check_names(columns)
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
            detail=f"it has {', '.join(known)}",
            hint="check the name",
        )
    return known[column]


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
