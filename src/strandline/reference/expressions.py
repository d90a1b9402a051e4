"""Evaluate expressions over named values.

Null propagates through arithmetic and comparison; `and` and `or` treat it as unknown; a division by zero is null.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final, assert_never

from strandline.errors import InvalidStep
from strandline.model.expressions import Binary, Expression, Literal, Name, Node, Unary

Scope = Mapping[str, Any]

_OPERATORS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq,
    "!=": operator.ne,
}  # fmt: skip
_DIVISIONS: Final = frozenset(("/", "//", "%"))


def evaluate(expression: Expression, scopes: Mapping[str, Scope | None]) -> Any:
    """Return the value of an expression. A name is looked up in its scope; a scope that is None has only nulls."""
    try:
        return _value(expression.tree, scopes)
    except (TypeError, OverflowError) as problem:
        raise InvalidStep(
            f"cannot compute {expression.text!r}", detail=str(problem), hint="compare numbers with numbers"
        ) from None


def _value(node: Node, scopes: Mapping[str, Scope | None]) -> Any:
    match node:
        case Literal(value):
            return value
        case Name(name, scope):
            return (scopes[scope] or {}).get(name)
        case Unary(sign, operand):
            return _unary(sign, _value(operand, scopes))
        case Binary("and" | "or" as word, left, right):
            return _logic(word, _truth(_value(left, scopes)), _truth(_value(right, scopes)))
        case Binary(sign, left, right):
            return _binary(sign, _value(left, scopes), _value(right, scopes))
    assert_never(node)


def _unary(sign: str, value: Any) -> Any:
    if sign == "null":
        return value is None
    if value is None:
        return None
    if sign == "not":
        return not _truth(value)
    return abs(value) if sign == "abs" else -value


def _binary(sign: str, left: Any, right: Any) -> Any:
    if left is None or right is None:
        return None
    if sign in _DIVISIONS and right == 0:
        return None
    return _OPERATORS[sign](left, right)


def _logic(word: str, left: bool | None, right: bool | None) -> bool | None:
    decides = word == "or"
    if decides in (left, right):
        return decides
    return None if None in (left, right) else not decides


def _truth(value: Any) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    raise TypeError(f"{value!r} is neither true nor false")
