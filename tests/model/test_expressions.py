"""Expressions are a subset of Python's; anything else is refused with the unsupported part."""

import pytest

from strandline.errors import InvalidStep
from strandline.model.expressions import Binary, Literal, Name, Unary, expression, names_of


def test_an_expression_is_a_tree() -> None:
    assert expression("total > 100").tree == Binary(">", Name("total"), Literal(100))
    assert expression("not last.total is None").tree == Unary("not", Unary("null", Name("total", "last")))
    assert expression("1 < n <= 3").tree == Binary(
        "and", Binary("<", Literal(1), Name("n")), Binary("<=", Name("n"), Literal(3))
    )
    assert expression("abs(-x) is not None").tree == Unary("not", Unary("null", Unary("abs", Unary("-", Name("x")))))
    assert str(expression("a and b")) == "a and b"


@pytest.mark.parametrize(
    "text",
    [
        "open('x')",
        "total >",
        "x.y.z",
        "[1]",
        "lambda: 1",
        "a is b",
        "a in b",
        "f'{x}'",
        "abs(1, 2)",
        "x if y else z",
        "~x",
    ],
)
def test_unsupported_syntax_is_refused(text: str) -> None:
    with pytest.raises(InvalidStep, match="cannot read the expression"):
        expression(text)


def test_a_tree_that_is_too_deep_is_refused() -> None:
    with pytest.raises(InvalidStep, match="cannot read the expression"):
        expression("-" * 5_000 + "x")


def test_every_name_is_found() -> None:
    tree = expression("total > last.total and -since < 3 or 1 == 2").tree
    assert names_of(tree) == {Name("total"), Name("total", "last"), Name("since")}
