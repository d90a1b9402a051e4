"""Column types in DDL."""

import pyarrow as pa
import pytest

from strandline.errors import InvalidStep
from strandline.formats.schema import parse_ddl


def test_a_name_and_a_type_for_each_column() -> None:
    schema = parse_ddl("team string, score long, level int, share double, won boolean, at timestamp")
    assert schema.names == ["team", "score", "level", "share", "won", "at"]
    assert schema.types == [
        pa.string(),
        pa.int64(),
        pa.int32(),
        pa.float64(),
        pa.bool_(),
        pa.timestamp("us", tz="UTC"),
    ]


def test_types_are_read_in_any_case_and_with_any_space() -> None:
    assert parse_ddl("  a   BIGINT ,\n\tb String") == parse_ddl("a long, b string")


@pytest.mark.parametrize(
    ("ddl", "column"),
    [
        ("", ""),
        ("team", "team"),
        ("team string,", ""),
        ("team text", "team text"),
        ("team string not null", "team string not null"),
        ("a string b long", "a string b long"),
    ],
)
def test_an_unknown_type_is_refused_with_the_list_of_types(ddl: str, column: str) -> None:
    with pytest.raises(InvalidStep, match="cannot read the column") as refused:
        parse_ddl(ddl)
    assert repr(column) in refused.value.message
    assert "string, long, bigint, int, double, boolean, timestamp" in refused.value.hint


def test_reserved_names_are_refused() -> None:
    with pytest.raises(InvalidStep, match="the column '@at' starts with @"):
        parse_ddl("team string, @at timestamp")


def test_duplicate_column_names_are_refused() -> None:
    with pytest.raises(InvalidStep, match="two columns are called 'team'"):
        parse_ddl("team string, score long, team long")
