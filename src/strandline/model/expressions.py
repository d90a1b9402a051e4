"""Parse and check small expressions over an aggregate's values; each engine evaluates the tree itself.

The language is a subset of Python's: names, `last.name`, numbers, texts, True, False, None, arithmetic, comparison,
`and`, `or`, `not`, `is None`, `abs(x)`. A comparison or a sum with null is null, and null is not true.
"""

import ast
from dataclasses import dataclass
from typing import Any, Final

from strandline.errors import InvalidStep


@dataclass(frozen=True, slots=True)
class Literal:
    value: Any


@dataclass(frozen=True, slots=True)
class Name:
    """A value by name; `last.total` is the name `total` of the scope `last`."""

    name: str
    scope: str = ""


@dataclass(frozen=True, slots=True)
class Unary:
    """`-x`, `not x`, `abs x`, or `null x`, which tests whether x is null."""

    operator: str
    operand: "Node"


@dataclass(frozen=True, slots=True)
class Binary:
    """`+ - * / // %`, `< <= > >= == !=`, `and`, `or`."""

    operator: str
    left: "Node"
    right: "Node"


Node = Literal | Name | Unary | Binary

_BINARY: Final = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
    ast.And: "and", ast.Or: "or",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Expression:
    """The text of an expression, and its tree."""

    text: str
    tree: Node

    def __str__(self) -> str:
        return self.text


def expression(text: str) -> Expression:
    """Parse an expression, or raise what in it cannot be parsed."""
    try:
        return Expression(text, _read(ast.parse(text.strip(), mode="eval").body))
    except (SyntaxError, ValueError, RecursionError) as problem:
        raise InvalidStep(
            f"cannot read the expression {text!r}", detail=str(problem), hint="e.g. total > 100"
        ) from None


def names_of(node: Node) -> frozenset[Name]:
    """Return every name that a tree reads."""
    match node:
        case Name():
            return frozenset((node,))
        case Unary(_, operand):
            return names_of(operand)
        case Binary(_, left, right):
            return names_of(left) | names_of(right)
        case Literal():
            return frozenset()


def _read(node: ast.expr) -> Node:
    match node:
        case ast.Constant(value) if value is None or isinstance(value, bool | int | float | str):
            return Literal(value)
        case ast.Name(name):
            return Name(name)
        case ast.Attribute(ast.Name(scope), name):
            return Name(name, scope)
        case ast.UnaryOp(ast.USub(), operand):
            return Unary("-", _read(operand))
        case ast.UnaryOp(ast.Not(), operand):
            return Unary("not", _read(operand))
        case ast.Call(ast.Name("abs"), [operand], []):
            return Unary("abs", _read(operand))
        case ast.BinOp(left, operator, right) if type(operator) in _BINARY:
            return Binary(_BINARY[type(operator)], _read(left), _read(right))
        case ast.BoolOp(operator, values):
            return _chain([_read(value) for value in values], _BINARY[type(operator)])
        case ast.Compare(left, operators, others):
            sides = [left, *others]
            pairs = [_compare(*pair) for pair in zip(operators, sides, others, strict=False)]
            return _chain(pairs, "and")
    raise ValueError(f"{ast.unparse(node)!r} is not part of the language")


def _compare(operator: ast.cmpop, left: ast.expr, right: ast.expr) -> Node:
    is_none = isinstance(right, ast.Constant) and right.value is None
    match operator:
        case ast.Is() if is_none:
            return Unary("null", _read(left))
        case ast.IsNot() if is_none:
            return Unary("not", Unary("null", _read(left)))
        case _ if type(operator) in _BINARY:
            return Binary(_BINARY[type(operator)], _read(left), _read(right))
    raise ValueError("only the usual comparisons and 'is None' are supported")


def _chain(nodes: list[Node], operator: str) -> Node:
    first, *rest = nodes
    for node in rest:
        first = Binary(operator, first, node)
    return first
