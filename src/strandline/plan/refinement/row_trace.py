"""Follow the columns of an operator's rows through stateless operations."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from strandline.model import ddl
from strandline.model.lookup_join import LookupJoin, Missing
from strandline.plan.lineage import LineagePath
from strandline.plan.nodes import KeyedNode
from strandline.plan.operators.contract import OperatorPlan, Refinement
from strandline.plan.stateless_operations import Expr, FlatMap, Gather, Map, Operation, Select, Spread, Sql, Where

WINDOW = ("window_start", "window_end")
"""The bounds of a pane's window, as operations read them."""
_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class RowTrace:
    """What is known of the rows at the end of a path from a keyed operator."""

    columns: frozenset[str]
    copies: tuple[tuple[str, str], ...]
    """Columns, each with the operator's column that it is a copy of."""
    fixed: frozenset[str]
    """Columns that are equal in all rows of a key and window."""
    about_panes: frozenset[str] = frozenset()
    """Columns that describe a pane, not its result, such as its timing."""
    value_filters: tuple[str, ...] = ()
    """Conditions that may keep one row of a key and window and drop another, by their results."""
    pane_filters: tuple[str, ...] = ()
    """Conditions that choose rows by what describes a pane, such as its timing."""
    is_computed: bool = False
    """Whether a user function makes the rows."""
    is_multiplied: bool = False
    """Whether a function may make several rows of one."""
    is_salted: bool = False
    """Whether the path leads to the second half of a salted step."""

    def names_of(self, column: str) -> tuple[str, ...]:
        """Return the columns that are copies of a column of the operator."""
        return tuple(name for name, of in self.copies if of == column)


def trace(path: LineagePath, origin: KeyedNode) -> RowTrace:
    """Follow the rows of a keyed operator to the end of a path."""
    names = tuple(origin.columns)
    plan = origin.plan
    window = frozenset(WINDOW) & plan.declared.keys()
    about = frozenset(plan.declared) - window
    fixed = frozenset(origin.keys) | (window if keeps_windows(plan) else frozenset[str]())
    copies = tuple((name, name) for name in names)
    traced = RowTrace(frozenset(names), copies, fixed, about)
    for operation in path.operations:
        traced = _after(traced, operation)
    return traced


def keeps_windows(plan: OperatorPlan) -> bool:
    """Tell whether all rows of one result have the same window."""
    return not plan.moves_windows or plan.refinement is Refinement.SINGLE


def _after(rows: RowTrace, operation: Operation) -> RowTrace:
    match operation:
        case Where(condition):
            return _filtered(rows, condition)
        case Select(columns, beside):
            return _selected(rows, columns, beside=beside)
        case Map(_, text) | FlatMap(_, text):
            kept = frozenset(ddl.parse(text))
            copies = tuple((name, of) for name, of in rows.copies if name in kept)
            made = replace(_only(rows, kept), copies=copies, is_computed=True)
            return replace(made, is_multiplied=rows.is_multiplied or isinstance(operation, FlatMap))
        case Spread() | Gather():
            return replace(rows, is_salted=True)
        case LookupJoin():
            return _enriched(rows, operation)
    assert_never(operation)


def _enriched(rows: RowTrace, join: LookupJoin) -> RowTrace:
    """The table may change between two rows of a key and window: the new columns differ, and rows may be dropped."""
    added = frozenset(new for _, new, _ in join.columns)
    drops = (str(join),) if join.missing is Missing.DROP else ()
    return replace(rows, columns=rows.columns | added, value_filters=(*rows.value_filters, *drops))


def _only(rows: RowTrace, names: frozenset[str]) -> RowTrace:
    return replace(rows, columns=names, fixed=rows.fixed & names, about_panes=rows.about_panes & names)


def _filtered(rows: RowTrace, condition: Expr) -> RowTrace:
    read = _columns_read(condition, rows)
    if read & rows.about_panes:
        return replace(rows, pane_filters=(*rows.pane_filters, condition.text))
    if read <= rows.fixed:
        return rows
    return replace(rows, value_filters=(*rows.value_filters, condition.text))


def _selected(rows: RowTrace, columns: Sequence[tuple[str, Expr]], *, beside: bool) -> RowTrace:
    known, copies = dict(rows.copies), dict(rows.copies) if beside else {}
    fixed, about = (set(rows.fixed), set(rows.about_panes)) if beside else (set[str](), set[str]())
    for name, value in columns:
        read, copied = _columns_read(value, rows), _copied(value)
        copies.pop(name, None)
        fixed.discard(name)
        about.discard(name)
        if copied in known:
            copies[name] = known[copied]
        if read <= rows.fixed:
            fixed.add(name)
        elif read & rows.about_panes:
            about.add(name)
    names = frozenset(name for name, _ in columns) | (rows.columns if beside else frozenset[str]())
    return RowTrace(
        names, tuple(copies.items()), frozenset(fixed), frozenset(about), rows.value_filters, rows.pane_filters,
        rows.is_computed, rows.is_multiplied, rows.is_salted,
    )  # fmt: skip


def _columns_read(expression: Expr, rows: RowTrace) -> frozenset[str]:
    """Return the columns that an expression reads; of SQL, all names of columns that occur in it."""
    if isinstance(expression, Sql):
        words = {word.lower() for word in _NAME.findall(expression.text)}
        return frozenset(name for name in rows.columns if name.lower() in words)
    if expression.expression.meta.has_multiple_outputs():
        return rows.columns
    return frozenset(expression.expression.meta.root_names())


def _copied(expression: Expr) -> str:
    """Return the column that an expression only names; an empty text if it computes."""
    if isinstance(expression, Sql):
        return expression.text if expression.text.isidentifier() else ""
    bare = expression.expression.meta.undo_aliases()
    names: list[str] = bare.meta.root_names()
    return names[0] if bare.meta.is_column() and len(names) == 1 else ""
