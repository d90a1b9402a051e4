"""The columns that an SQL expression reads: every name that can be nothing else, and no other."""

import pytest

from strandline.plan.sql_names import columns_read


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("score > 1", ("score",)),
        ("cast(score as int) > 3 and team = 'red'", ("score", "team")),
        ("address.street.name", ("address",)),
        ("transform(tags, x -> x + base)", ("tags", "base")),
        ("aggregate(xs, 0, (acc, x) -> acc + x)", ("xs",)),
        ("case when a > 1 then 'b' else c end", ("a", "c")),
        ("cast(x as struct<a: int, b: array<string>>).a + y", ("x", "y")),
        ("x::decimal(10,2) + y", ("x", "y")),
        ("date '2020-01-01' < d", ("d",)),
        ("extract(year from happened)", ("happened",)),
        ("happened + interval 5 minutes", ("happened",)),
        ("`we``ird` + 1", ("we`ird",)),
        ("struct(score as points, team t)", ("score", "team")),
        ("a in ('x', 'y') and b like '%z%' escape '!'", ("a", "b")),
        ("trim(both 'x' from s)", ("s",)),
        ("1e5 + 10L + 3.5BD", ()),
        ("m['key'].f", ("m",)),
        ("raw:field.x::int > 1", ("raw",)),
        ('team = "red"', ("team",)),
        ("a < b and cast(c as int) > d", ("a", "b", "c", "d")),
        ("current_date", ()),
        ("X'1F' = h -- score", ("h",)),
        ("a /* b */ + c", ("a", "c")),
        ("count(*) over (partition by q)", ()),
        ("exists (select 1 from t where t.x = y)", ()),
        ("it's not closed", ()),
        ("", ()),
    ],
)
def test_names_that_must_be_columns_are_found(sql: str, columns: tuple[str, ...]) -> None:
    assert columns_read(sql) == columns
