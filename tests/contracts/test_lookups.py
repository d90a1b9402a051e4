"""Contract of lookup tables: the same keys get the same rows from each of them."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from strandline.errors import LookupFailed, LookupUnavailable
from strandline.kernel.stateless_steps import PROBLEM
from tests.contracts import lookup_tables
from tests.contracts.lookup_tables import COLUMNS, SHAPE, Row, Table

ANN: Row = (1, "Ann", 1.5, True)
BOB: Row = (2, "Bob", -2.0, False)
NULLS: Row = (-3, None, None, None)
UNICODE: Row = (2**63 - 1, "Zoë 'quoted' \"twice\" %s \\ 🙂", 0.0, True)
ROWS = [ANN, BOB, NULLS, UNICODE]

KINDS = [
    "sqlite",
    "function",
    "http",
    "http, many keys",
    "parquet",
    pytest.param("duckdb", marks=pytest.mark.slow),
    pytest.param("delta", marks=pytest.mark.slow),
    pytest.param("postgres", marks=pytest.mark.services),
    pytest.param("valkey", marks=pytest.mark.services),
]


@pytest.fixture(params=KINDS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Table]:
    match request.param:
        case "sqlite":
            made = lookup_tables.sqlite_table(tmp_path)
        case "duckdb":
            made = lookup_tables.duckdb_table(tmp_path)
        case "delta":
            pytest.importorskip("deltalake", reason='it needs "strandline[delta]"')
            made = lookup_tables.delta_table(tmp_path)
        case "parquet":
            made = lookup_tables.parquet_table(tmp_path)
        case "function":
            made = lookup_tables.function_table()
        case "http" | "http, many keys" as kind:
            made = lookup_tables.http_table(many=kind != "http")
        case name:
            address = request.getfixturevalue(name).address
            made = getattr(lookup_tables, f"{name}_table")(address)
    yield made
    made.close()


def found(table: Table, *keys: int, columns: str = COLUMNS) -> list[tuple[Any, ...]]:
    lookup = table.lookup(columns)
    names = [name for name in lookup.table_columns if name != "user_id"]
    opened = lookup.open(("user_id",), tuple(names))
    try:
        rows = opened.rows(pl.DataFrame({"user_id": keys}, schema={"user_id": pl.Int64}))
    finally:
        opened.close()
    assert PROBLEM not in rows.columns or rows[PROBLEM].null_count() == rows.height
    shown = rows.select("user_id", *names)
    assert dict(shown.schema) == {name: SHAPE[name] for name in shown.columns}
    return sorted(shown.rows())


def test_keys_that_the_table_has_get_their_rows_and_others_none(table: Table) -> None:
    table.put(ROWS)
    assert found(table, 1, 2, 7, -3, 2**63 - 1) == sorted(ROWS, key=lambda row: row[0])
    assert found(table, 7) == []


def test_a_table_without_rows_has_none(table: Table) -> None:
    table.put([])
    assert found(table, 1, 2) == []


def test_a_row_that_changed_is_seen_by_the_next_request(table: Table) -> None:
    table.put([ANN])
    assert found(table, 1) == [ANN]
    table.put([(1, "Anna", 2.5, False)])
    assert found(table, 1) == [(1, "Anna", 2.5, False)]
    table.put([])
    assert found(table, 1) == []


def test_an_open_table_sees_a_change_too(table: Table) -> None:
    table.put([ANN])
    opened = table.lookup(COLUMNS).open(("user_id",), ("name",))
    key = pl.DataFrame({"user_id": [1]})
    try:
        assert opened.rows(key)["name"].to_list() == ["Ann"]
        table.put([(1, "Anna", 1.5, True)])
        assert opened.rows(key)["name"].to_list() == ["Anna"]
    finally:
        opened.close()


def test_only_the_columns_of_the_lookup_are_read(table: Table) -> None:
    table.put([ANN])
    assert found(table, 1, columns="user_id long, active boolean") == [(1, True)]


def test_many_keys_are_found(table: Table) -> None:
    rows: list[Row] = [(key, f"name {key}", float(key), key % 2 == 0) for key in range(90)]
    table.put(rows)
    assert found(table, *range(120)) == rows


def test_a_table_that_fits_passes_the_check(table: Table) -> None:
    table.lookup(COLUMNS).check(("user_id",))


def test_an_unknown_column_is_refused_with_the_nearest_name(table: Table) -> None:
    if "columns" not in table.can:
        pytest.skip("it has no list of columns")
    with pytest.raises(LookupFailed, match="has no column 'nam'.*did you mean 'name'"):
        table.lookup("user_id long, nam string").check(("user_id",))


def test_another_type_is_refused_with_both(table: Table) -> None:
    if "types" not in table.can:
        pytest.skip("its columns have no types")
    with pytest.raises(LookupFailed, match="the column 'name' of .* is .*, and the lookup reads it as long"):
        table.lookup("user_id long, name long").check(("user_id",))


def test_a_missing_table_is_refused_by_name(table: Table) -> None:
    if table.missing is None:
        pytest.skip("it is only known by its answers")
    with pytest.raises(LookupFailed, match="people"):
        table.missing().check(("user_id",))


@pytest.mark.services
@pytest.mark.parametrize("name", ["postgres", "valkey"])
def test_an_open_table_is_unavailable_while_its_server_is_down_and_answers_again(
    name: str, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue(name)
    made = getattr(lookup_tables, f"{name}_table")(server.address)
    made.put([ANN])
    opened = made.lookup(COLUMNS).open(("user_id",), ("name",))
    key = pl.DataFrame({"user_id": [1]})
    assert opened.rows(key)["name"].to_list() == ["Ann"]
    server.kill()
    try:
        begun = time.monotonic()
        with pytest.raises(LookupUnavailable):
            opened.rows(key)
        assert time.monotonic() - begun < 5
    finally:
        server.start()
    again = getattr(lookup_tables, f"{name}_table")(server.address)
    again.put([ANN])
    assert opened.rows(key).height in (0, 1)  # a server may have lost its last second of writes
    opened.close()
    made.close()
    again.close()
