"""Null propagates, except where the result is known without it."""

from typing import Any

import pytest

from strandline.errors import InvalidStep
from strandline.model.expressions import expression
from strandline.reference.expressions import evaluate

VALUES: dict[str, dict[str, Any]] = {"": {"x": 7, "y": None, "t": True, "f": False, "s": "b"}, "last": {"x": 3}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x + 1 - 2 * 3", 2),
        ("x / 2", 3.5),
        ("x // 2 + x % 4", 6),
        ("-7 // 2", -4),
        ("abs(-x)", 7),
        ("x - last.x", 4),
        ("last.z", None),
        ("x > 5", True),
        ("5 < x < 7", False),
        ("s >= 'a'", True),
        ("x == 7 and x != 8", True),
        ("y + 1", None),
        ("-y", None),
        ("abs(y)", None),
        ("not y", None),
        ("y > 1", None),
        ("y == y", None),
        ("y is None", True),
        ("x is not None", True),
        ("y > 1 or t", True),
        ("f or y > 1", None),
        ("y > 1 and f", False),
        ("t and y > 1", None),
        ("not f", True),
        ("x / 0", None),
        ("x // 0", None),
        ("x % 0", None),
    ],
)
def test_an_expression_is_evaluated(text: str, expected: Any) -> None:
    assert evaluate(expression(text), VALUES) == expected


def test_a_missing_scope_has_only_nulls() -> None:
    assert evaluate(expression("last.x is None"), {"": {}, "last": None}) is True


@pytest.mark.parametrize("text", ["x > s", "x and t", "not x", "s - 1", "abs(s)"])
def test_an_error_names_the_expression(text: str) -> None:
    with pytest.raises(InvalidStep) as error:
        evaluate(expression(text), VALUES)
    assert repr(text) in error.value.message
