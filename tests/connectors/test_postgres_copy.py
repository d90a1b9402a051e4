"""Rows sent to PostgreSQL in binary form equal the rows sent as text."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.connectors.sql.binary_copy import binary_form, has_binary_form
from strandline.connectors.sql.postgres import PostgresDatabase, _text_form, postgres
from strandline.connectors.sql.tables import fit
from strandline.formats.sink_columns import SinkRows, to_sink_rows
from strandline.kernel.blocks.block import END, START
from strandline.model.elements import BEGINNING
from strandline.model.elements import END as LAST
from strandline.services.service import Service

pytest_plugins = ["strandline.testing.services"]
pytestmark = pytest.mark.services

INSTANTS = [BEGINNING.ms, 0, 1_700_000_000_123, -62_135_596_800_000, LAST.ms, None]
KINDS = {
    START: pl.Series(INSTANTS, dtype=pl.Int64),
    END: pl.Series(INSTANTS[::-1], dtype=pl.Int64),
    "whole": pl.Series([0, -1, 2**63 - 1, -(2**63), 7, None]),
    "small": pl.Series([0, -1, 127, -128, 7, None], dtype=pl.Int8),
    "real": pl.Series([0.0, -0.0, 1e308, float("inf"), float("nan"), None]),
    "flag": pl.Series([True, False, None, True, False, True]),
    "text": pl.Series(["", "a", 'quo"te, and\nline', "\\N", "ünï€𝄞", None]),
    "bytes": pl.Series([b"", b"\x00\xff", b"\\x", b"a" * 255, b"\n", None]),
    "moment": pl.Series([datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)] * 3),
    "wall": pl.Series(["1999-12-31T23:59:59.999", "2000-01-01T00:00", None] * 2).str.to_datetime(time_unit="ms"),
    "day": pl.Series([date(1, 1, 1), date(1970, 1, 1), date(2000, 1, 1), date(9999, 12, 31), None, None]),
    "nested": pl.Series([[1, 2], [], None, [3], None, [None]], dtype=pl.List(pl.Int64)),
    "nothing": pl.Series([None] * 6, dtype=pl.Null),
}  # fmt: skip
OTHERS = {
    "narrow": pl.Series([0.1, None], dtype=pl.Float32),
    "exact": pl.Series([Decimal("1.50"), None]),
    "wide": pl.Series([2**64 - 1, None], dtype=pl.UInt64),
    "fine": pl.Series([1, None], dtype=pl.Datetime("ns")),
    "hour": pl.Series([time(1, 2, 3), None]),
    "long": pl.Series(["a" * 256, None]),
}
SAME = "SELECT count(*) FROM (SELECT {0} FROM {1} EXCEPT ALL SELECT {0} FROM {2}) AS other"


@pytest.fixture(scope="module")
def database(postgres: Service) -> Iterator[PostgresDatabase]:
    own = postgres_at(postgres.address)
    yield own
    own.close()


def postgres_at(dsn: str) -> PostgresDatabase:
    return postgres("unused", dsn=dsn).database()


def both_ways(database: PostgresDatabase, rows: SinkRows) -> tuple[int, int]:
    """Count the rows that differ between a table written in binary form and one written as text, and all rows."""
    connection = database._open()
    columns = ", ".join(f"{database.quoted(each.name)} {database.type_of(each)}" for each in rows.columns)
    names = ", ".join(f"{database.quoted(each.name)}::text" for each in rows.columns)
    with connection.transaction(force_rollback=True):
        for table, form, parts in (
            ("as_bytes", "binary", binary_form(rows)),
            ("as_text", "csv, NULL '\\N'", _text_form(rows)),
        ):
            connection.execute(f"CREATE TEMP TABLE {table} ({columns})")
            with connection.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN (FORMAT {form})") as copy:
                for part in parts:
                    copy.write(part)
        assert has_binary_form(rows, database.columns("as_bytes"))
        ((differ,),) = connection.execute(SAME.format(names, "as_bytes", "as_text")).fetchall()
        ((count,),) = connection.execute("SELECT count(*) FROM as_bytes").fetchall()
    return differ, count


def test_every_kind_with_a_binary_form_has_the_same_value_as_its_text(database: PostgresDatabase) -> None:
    assert both_ways(database, to_sink_rows(pl.DataFrame(KINDS), 3)) == (0, 6)


def test_a_narrow_integer_instant_has_the_same_value(database: PostgresDatabase) -> None:
    assert both_ways(database, to_sink_rows(pl.DataFrame({START: pl.Series([0, 20_000], dtype=pl.Int32)}), 3)) == (0, 2)


def test_rows_of_many_slices_have_the_same_values(database: PostgresDatabase) -> None:
    many = pl.DataFrame(KINDS).sample(45_000, with_replacement=True, seed=7)
    assert both_ways(database, to_sink_rows(many, 3)) == (0, 45_000)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(-(2**63), 2**63 - 1),
            st.none() | st.floats(),
            st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60),
            st.none() | st.booleans(),
            st.none() | st.datetimes(),
        ),
        min_size=1,
    )
)
def test_any_rows_have_the_same_values(database: PostgresDatabase, rows: list[tuple[object, ...]]) -> None:
    schema: dict[str, Any] = {"i": pl.Int64, "f": pl.Float64, "s": pl.String, "b": pl.Boolean, "t": pl.Datetime("us")}
    assert both_ways(database, to_sink_rows(pl.DataFrame(rows, schema, orient="row"), 0)) == (0, len(rows))


@pytest.mark.parametrize("name", OTHERS)
def test_values_without_a_binary_form_are_sent_as_text(database: PostgresDatabase, name: str) -> None:
    rows = to_sink_rows(pl.DataFrame({name: OTHERS[name]}), 0)
    with database._open().transaction(force_rollback=True):
        fit(database, "of_others", rows.columns, widen=False)
        types = database.columns("of_others")
    assert not has_binary_form(rows, types)
    assert has_binary_form(rows.only(rows.rows.slice(1)), types)  # where there is nothing in it, a null will do


@pytest.mark.parametrize(
    ("name", "declared"),
    [("whole", "integer"), ("text", "numeric"), ("flag", "text"), ("day", "timestamp with time zone")],
)
def test_columns_of_another_type_get_text(name: str, declared: str) -> None:
    assert not has_binary_form(to_sink_rows(pl.DataFrame({name: KINDS[name]}), 0), {name: declared, "batch": "bigint"})


@pytest.mark.parametrize("instant", [-(10**15), 10**16, 2**62])
def test_an_instant_out_of_range_is_sent_as_text(instant: int) -> None:
    rows = to_sink_rows(pl.DataFrame({START: [instant]}), 0)
    assert not has_binary_form(rows, {"window_start": "timestamp with time zone", "batch": "bigint"})


def test_rows_are_found_by_the_index_however_small_the_table_is(database: PostgresDatabase) -> None:
    rows = to_sink_rows(pl.DataFrame({"id": range(1_000), "value": range(1_000)}), 0)
    merge = (
        "EXPLAIN MERGE INTO found_by USING {0} AS s ON found_by.id = s.id "
        "WHEN MATCHED THEN UPDATE SET value = s.value WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.value)"
    )
    with database._open().transaction(force_rollback=True):
        database.execute("CREATE TABLE found_by (id bigint, value bigint, batch bigint)")
        staged = database.stage("found_by", rows)
        with database.lookup("found_by", ("id",)):
            without = str(database.execute(merge.format(staged)))
        database.execute("CREATE UNIQUE INDEX by_id ON found_by (id)")
        with database.lookup("found_by", ("id",)):
            by_index = str(database.execute(merge.format(staged)))
        ((after,),) = database.execute("SHOW enable_seqscan")
    assert "by_id" not in without
    assert "by_id" in by_index
    assert "Nested Loop" in by_index
    assert after == "on"


def test_deletes_use_the_index_too(database: PostgresDatabase) -> None:
    rows = to_sink_rows(pl.DataFrame({"id": range(1_000)}), 0)
    with database._open().transaction(force_rollback=True):
        database.execute("CREATE TABLE found_by (id bigint, value bigint, batch bigint)")
        database.execute("CREATE UNIQUE INDEX by_id ON found_by (id)")
        staged = database.stage("found_by", rows)
        delete = f"EXPLAIN DELETE FROM found_by WHERE EXISTS (SELECT 1 FROM {staged} AS s WHERE found_by.id = s.id)"
        with database.lookup("found_by", ("id",)):
            plan = str(database.execute(delete))
    assert "Index Cond: (id = s.id)" in plan


def test_an_upsert_table_reserves_space_for_updates(database: PostgresDatabase) -> None:
    rows = to_sink_rows(pl.DataFrame({"id": [1], "value": [2]}), 0)
    with database._open().transaction(force_rollback=True):
        fit(database, "with_room", rows.columns, widen=False, unique=("id",))
        fit(database, "as_it_comes", rows.columns, widen=False)
        found = database.execute(
            "SELECT relname, reloptions FROM pg_class WHERE relname IN ('with_room', 'as_it_comes')"
        )
    assert dict(found) == {"with_room": ["fillfactor=50"], "as_it_comes": None}
