"""Translate expression trees of the model to Polars expressions.

Arithmetic and comparison with null give null. `and` and `or` use three-valued logic. Division by zero gives null.
"""

from collections.abc import Callable, Mapping
from typing import Final, assert_never

import polars as pl

from strandline.model.expressions import Binary, Literal, Name, Node, Unary

Names = Callable[[Name], pl.Expr]
"""Resolves a name to the expression of its column."""

_PLAIN: Final[Mapping[str, Callable[[pl.Expr, pl.Expr], pl.Expr]]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "and": lambda a, b: a & b, "or": lambda a, b: a | b,
}  # fmt: skip
_DIVISIONS: Final[Mapping[str, Callable[[pl.Expr, pl.Expr], pl.Expr]]] = {
    "/": lambda a, b: a / by_row(b),
    "//": lambda a, b: a // by_row(b),
    "%": lambda a, b: a % by_row(b),
}


def by_row(divisor: pl.Expr) -> pl.Expr:
    """Turn a divisor into a column with one value per row.

    Polars multiplies by the reciprocal of a scalar divisor: 49.0 // 49.0 would be 0, and a quotient would depend on the
    other rows of the frame.
    """
    return divisor + pl.int_range(pl.len()) * 0


def to_expr(node: Node, names: Names) -> pl.Expr:
    """Translate a tree to a Polars expression."""
    match node:
        case Literal(value):
            return pl.lit(value)
        case Name():
            return names(node)
        case Unary("null", operand):
            return to_expr(operand, names).is_null()
        case Unary("not", operand):
            return ~to_expr(operand, names)
        case Unary("abs", operand):
            return to_expr(operand, names).abs()
        case Unary(_, operand):
            return -to_expr(operand, names)
        case Binary(sign, left, right):
            a, b = to_expr(left, names), to_expr(right, names)
            if sign in _DIVISIONS:
                return pl.when(b != 0).then(_DIVISIONS[sign](a, b))
            return _PLAIN[sign](a, b)
    assert_never(node)
