"""Expressions over columns give the values of the reference, row by row."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import polars as pl
import pytest

from strandline.kernel.expressions import to_expr
from strandline.model.expressions import Name, expression
from strandline.reference.expressions import evaluate

Row = dict[str, Any]

ROWS: Sequence[Row] = [
    {"x": x, "y": y, "t": t, "s": s, "last.x": last}
    for x, y, t, s, last in product((7, -7, 0, None), (2, -3, 0, None), (True, False, None), ("b", None), (3, None))
]
KINDS = {"x": pl.Int64, "y": pl.Int64, "t": pl.Boolean, "s": pl.String, "last.x": pl.Int64}
FRAME = pl.DataFrame(ROWS, KINDS)


def column(name: Name) -> pl.Expr:
    return pl.col(f"{name.scope}.{name.name}" if name.scope else name.name)


def oracle(text: str, row: Row) -> Any:
    return evaluate(expression(text), {"": row, "last": {"x": row["last.x"]}})


@pytest.mark.parametrize(
    "text",
    [
        "x + 1 - 2 * y",
        "x / 2",
        "x / y",
        "x // y",
        "x % y",
        "x // 2 + x % 4",
        "-7 // 2",
        "abs(-x)",
        "-y",
        "x - last.x",
        "x > 5",
        "-5 < x < 7",
        "s >= 'a'",
        "s == 'b'",
        "x == 7 and y != 8",
        "x + y > 3",
        "not t",
        "not (x > y)",
        "y == y",
        "y is None",
        "x is not None",
        "last.x is None or x - last.x >= 4",
        "y > 1 or t",
        "t or y > 1",
        "y > 1 and t",
        "t and y > 1",
        "x / 0",
        "x // 0",
        "x % 0",
        "x / y > 1 or y is None",
    ],
)
def test_an_expression_has_the_reference_value_in_every_row(text: str) -> None:
    found = FRAME.select(to_expr(expression(text).tree, column).alias("value"))["value"]
    values = found.to_list() if len(found) == len(ROWS) else found.to_list() * len(ROWS)
    assert values == [oracle(text, row) for row in ROWS]


def test_a_name_is_resolved_by_the_given_function() -> None:
    frame = pl.DataFrame({"here": [1], "there": [10]})
    tree = expression("total + last.total").tree
    assert frame.select(to_expr(tree, lambda name: pl.col("there" if name.scope else "here"))).item() == 11


@pytest.mark.parametrize("sign", ["/", "//", "%"])
def test_division_by_a_scalar_is_exact(sign: str) -> None:
    """Polars would multiply by a rounded 1 / 49, and 49.0 // 49.0 would be 0."""
    frame = pl.DataFrame({"x": [49.0, 98.0, 5.0]})
    found = frame.select(to_expr(expression(f"x {sign} 49.0").tree, lambda name: pl.col(name.name)).alias("value"))[
        "value"
    ]
    expected = {"/": [1.0, 2.0, 5.0 / 49.0], "//": [1.0, 2.0, 0.0], "%": [0.0, 0.0, 5.0]}
    assert found.to_list() == expected[sign]
