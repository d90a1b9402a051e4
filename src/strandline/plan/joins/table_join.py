"""Build joins of tables: `sl.join_tables(orders, payments, shipments, how="left").on("order_id")`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from strandline.errors import InvalidStep
from strandline.model.arguments import checked_methods
from strandline.model.elements import Duration, Length, TimeDomain, duration
from strandline.model.joins import How
from strandline.model.table_join import TableJoin, table_role
from strandline.plan.endpoints import Sink
from strandline.plan.joins.keys_and_columns import join_type, type_of
from strandline.plan.lineage import LineagePath, paths_to
from strandline.plan.nodes import KeyedInput, KeyedNode, Node
from strandline.plan.operators.contract import Accepted, Refinement
from strandline.plan.refinement.row_trace import trace

S = TypeVar("S")

RETRACTION: Final = "retraction"
"""Column of panes with their sign. The result has a sign of its own."""

Names = str | Sequence[str]


@dataclass(frozen=True, slots=True)
class TableJoinOptions:
    """How tables are joined, and how long the rows of a key are kept."""

    joins: tuple[How, ...]
    ttl: Duration | None = None
    ttl_time: TimeDomain = TimeDomain.EVENT
    forever: bool = False
    suffixes: tuple[str, ...] = ()
    """For each table after the first, the suffix of its columns whose name is taken."""
    late: Sink | None = None


@dataclass(frozen=True, slots=True)
@checked_methods
class TablesToJoin(Generic[S]):
    """Tables to join, without their key."""

    tables: tuple[Node, ...]
    options: TableJoinOptions
    make_stream: Callable[[Node], S] = field(repr=False, compare=False)

    def on(self, *columns: str, **pairs: str | Sequence[str]) -> S:
        """Set the key columns: `on("order_id")`, or `on(order_id="id")` if later tables have another name for it.

        If the later tables differ, name the column of each: `on(order_id=["order", "order_no"])`.
        """
        return self.make_stream(table_join(self.tables, columns, pairs, self.options))


def table_join_options(
    tables: int,
    *,
    how: How | str | Sequence[str],
    expire_after: Length | None,
    time_to_live: Length | None,
    forever: bool,
    suffixes: Sequence[str],
    late: Sink | None,
) -> TableJoinOptions:
    """Check the options of a table join."""
    given = [how] * (tables - 1) if isinstance(how, str) else [*how]
    if len(given) != tables - 1:
        raise InvalidStep(
            f"{len(given)} join types are given for {tables} tables",
            hint='give one for all, as in how="left", or one for each table after the first',
        )
    if expire_after is not None and time_to_live is not None:
        raise InvalidStep(
            "expire_after and time_to_live are both given",
            hint="choose expire_after, in event time, or time_to_live, in processing time",
        )
    if suffixes and len(suffixes) != tables - 1:
        raise InvalidStep(
            f"{len(suffixes)} suffixes are given for {tables} tables", hint="give one for each table after the first"
        )
    kept = time_to_live if expire_after is None else expire_after
    domain = TimeDomain.EVENT if time_to_live is None else TimeDomain.PROCESSING
    usual = tuple(f"_{number}" for number in range(2, tables + 1))
    return TableJoinOptions(
        tuple(join_type(each) for each in given), None if kept is None else duration(kept), domain, forever,
        tuple(suffixes) or usual, late,
    )  # fmt: skip


def table_join(
    tables: Sequence[Node], names: Sequence[str], pairs: Mapping[str, Names], options: TableJoinOptions
) -> KeyedNode:
    """Check the keys and columns of a table join, and return its node."""
    keys = _keys(tables, names, pairs)
    times = [path.time for node in tables for path in paths_to(node)]
    by_clock = any(time is not None and time.column is None for time in times)
    if by_clock and options.ttl is not None and options.ttl_time is TimeDomain.EVENT:
        raise InvalidStep(
            "expire_after compares event times, and a table uses processing time",
            hint="choose time_to_live, or call event_time(column, watermark) on every table",
        )
    for number, node in enumerate(tables):
        _refuse_sign_column(node, number)
    renamed, columns = _columns(tables, keys, options.suffixes)
    operator = TableJoin(
        options.joins, options.ttl, options.ttl_time,
        all(_has_one_row(node, keys[number]) for number, node in enumerate(tables)), renamed, columns,
        TimeDomain.PROCESSING if by_clock else TimeDomain.EVENT,
    )  # fmt: skip
    streams = tuple(KeyedInput(table_role(number), node, keys[number]) for number, node in enumerate(tables))
    accepted = frozenset({Accepted.FOR_EVER}) if options.forever else frozenset[Accepted]()
    return KeyedNode(streams, operator, accepted, late_sink=options.late)


def _keys(tables: Sequence[Node], names: Sequence[str], pairs: Mapping[str, Names]) -> list[tuple[str, ...]]:
    """Return the key columns of each table. They exist, and their types agree."""
    if not names and not pairs:
        raise InvalidStep("on(…) names no column", hint='as in on("order_id"), or on(order_id="id") if names differ')
    found = [(*names, *pairs)]
    found += [
        (*names, *(_name_in(first, given, number, len(tables)) for first, given in pairs.items()))
        for number in range(1, len(tables))
    ]
    for number, own in enumerate(found):
        if len({*own}) < len(own):
            raise InvalidStep(f"on(…) names a column of {table_role(number)} twice", hint="name each once")
    for place, first in enumerate(found[0]):
        kind = type_of(tables[0].columns, first, table_role(0))
        for number in range(1, len(tables)):
            name, where = found[number][place], table_role(number)
            other = type_of(tables[number].columns, name, where)
            if kind is not None and other is not None and kind != other:
                raise InvalidStep(
                    f"the keys {first!r} and {name!r} have different types",
                    detail=f"{kind} in {table_role(0)}, {other} in {where}",
                    hint=f'cast one of them, as in with_columns({name}="cast({name} as {kind})")',
                )
    return found


def _name_in(first: str, given: Names, number: int, tables: int) -> str:
    if isinstance(given, str):
        return given
    if len(given) != tables - 1:
        raise InvalidStep(
            f"on({first}=…) names {len(given)} columns for {tables - 1} later tables",
            hint="name one for all of them, or one for each",
        )
    return given[number - 1]


def _columns(
    tables: Sequence[Node], keys: Sequence[tuple[str, ...]], suffixes: Sequence[str]
) -> tuple[tuple[tuple[str, str, str], ...], tuple[tuple[str, str, str | None], ...]]:
    """Return the columns that get another name in the result, and the columns of the result except the keys."""
    renamed: list[tuple[str, str, str]] = []
    columns: list[tuple[str, str, str | None]] = []
    taken = {*keys[0]}
    for number, node in enumerate(tables):
        role = table_role(number)
        own = {name: kind for name, kind in node.columns.items() if name not in (*keys[number], RETRACTION)}
        for name, kind in own.items():
            new = f"{name}{suffixes[number - 1]}" if name in taken and number else name
            if new in taken or (new != name and new in own):
                raise InvalidStep(
                    f"two tables have a column {name!r}, and {new!r} is taken too",
                    hint='choose other suffixes, as in suffixes=["_payment", "_shipment"]',
                )
            taken.add(new)
            renamed += [(role, name, new)] if new != name else []
            columns.append((role, new, kind))
    return tuple(renamed), tuple(columns)


def _refuse_sign_column(node: Node, number: int) -> None:
    """Refuse a user's column with the name of the sign of panes, which the join would drop."""
    if RETRACTION in node.columns and not any(_sends_signs(path) for path in paths_to(node)):
        raise InvalidStep(
            f"{table_role(number)} has a column {RETRACTION!r}, which would be mistaken for the sign of its rows",
            hint="rename it with select(…)",
        )


def _sends_signs(path: LineagePath) -> bool:
    return isinstance(path.origin, KeyedNode) and RETRACTION in path.origin.plan.declared


def _has_one_row(node: Node, keys: tuple[str, ...]) -> bool:
    """Tell whether a table never has two rows of a key: each row of its operator replaces the one before it."""
    paths = [*paths_to(node)]
    if len(paths) != 1 or not isinstance(paths[0].origin, KeyedNode):
        return False
    origin, plan = paths[0].origin, paths[0].origin.plan
    # An operator that never forgets a key always retracts the row before.
    is_replaced = plan.refinement is Refinement.CHANGELOG and not plan.declared
    never_forgets = plan.rows_behind is None and plan.forgets is None
    rows = trace(paths[0], origin)
    copied = {of for name, of in rows.copies if name in keys}
    return is_replaced and never_forgets and {*origin.keys} <= copied and not rows.is_computed
