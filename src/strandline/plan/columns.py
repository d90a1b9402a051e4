"""The columns that rows have after each step, with their types as far as they are known before Spark looks."""

from strandline.model import ddl
from strandline.model.aggregates import (
    Aggregate,
    AllTrue,
    AnyTrue,
    ApproxCountDistinct,
    Collect,
    Count,
    CountDistinct,
    Mean,
    StdDev,
    StringAgg,
    Sum,
    TopK,
    UserAggregate,
    Variance,
)
from strandline.plan.nodes import Aggregated, EventTime, Node, Read, Stateless, Union, Within, Write
from strandline.plan.stateless_operations import types_after

Columns = dict[str, str | None]

PANE = {
    "window_start": "timestamp",
    "window_end": "timestamp",
    "timing": "string",
    "pane_index": "long",
    "is_last": "boolean",
    "retraction": "boolean",
}
"""What can be read of a pane besides its key and its values."""


def columns_after(node: Node) -> Columns:
    """The columns of a node's rows."""
    match node:
        case Read(source):
            return dict(source.types)
        case Stateless(of, operation):
            return types_after(operation, columns_after(of), ddl.parse)
        case Union(streams):
            return columns_after(streams[0])
        case EventTime(of) | Within(of) | Write(of):
            return columns_after(of)
        case Aggregated(of, keys, step):
            known = columns_after(of)
            values = {name: _value_type(aggregate, known) for name, aggregate in step.aggregates}
            return {**{key: known.get(key) for key in keys}, **values, **PANE}


def _value_type(aggregate: Aggregate, known: Columns) -> str | None:
    of = known.get(aggregate.column or "")
    match aggregate:
        case Count() | CountDistinct() | ApproxCountDistinct():
            return "long"
        case Mean() | Variance() | StdDev():
            return "double"
        case AnyTrue() | AllTrue():
            return "boolean"
        case StringAgg():
            return "string"
        case Sum():
            return "double" if of in ("float", "double") else of and (of if of.startswith("decimal") else "long")
        case Collect() | TopK():
            return of and f"array<{of}>"
        case UserAggregate():
            return None
        case _:
            return of
