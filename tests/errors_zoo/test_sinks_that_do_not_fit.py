"""Sinks are checked when they are opened, before Spark starts: they exist, fit, may be written, have their keys."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import strandline as sl
from strandline.errors import SetupError, SinkError
from strandline.plan.compile import to_stages
from strandline.spark.delivery.open_sinks import close_sinks, open_sinks
from tests.errors_zoo.animals import totals


def opened(sink: Any) -> None:
    close_sinks(open_sinks(to_stages(totals().write(sink).root), "lineage"))


def table(path: Path, columns: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE TABLE totals ({columns})")


PANE = "window_start TEXT, window_end TEXT, timing TEXT, pane_index INTEGER, is_last INTEGER, retraction INTEGER"


def test_a_table_that_fits_is_opened(tmp_path: Path) -> None:
    table(tmp_path / "a.db", f"team TEXT, total INTEGER, {PANE}")
    opened(sl.sqlite(tmp_path / "a.db", table="totals"))


def test_a_table_of_other_columns_is_refused(tmp_path: Path) -> None:
    table(tmp_path / "a.db", f"team TEXT, {PANE}")
    with pytest.raises(SinkError, match="the table 'totals' does not fit the rows to write") as refused:
        opened(sl.sqlite(tmp_path / "a.db", table="totals"))
    assert refused.value.detail == "total is missing"
    assert "evolve=True" in refused.value.hint
    opened(sl.sqlite(tmp_path / "a.db", table="totals", evolve=True))


def test_a_table_of_other_types_is_refused(tmp_path: Path) -> None:
    table(tmp_path / "a.db", f"team INTEGER, total INTEGER, {PANE}")
    with pytest.raises(SinkError, match="does not fit") as refused:
        opened(sl.sqlite(tmp_path / "a.db", table="totals"))
    assert refused.value.detail == "team is integer, expected text"


def test_a_table_of_duckdb_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(tmp_path / "a.duckdb")) as connection:
        connection.execute("CREATE TABLE totals (team VARCHAR, total DATE)")
    with pytest.raises(SinkError, match="does not fit") as refused:
        opened(sl.duckdb(tmp_path / "a.duckdb", table="totals"))
    assert "total is date, expected integer" in refused.value.detail


def test_a_table_with_a_user_column_of_a_panes_name_is_opened(tmp_path: Path) -> None:
    table(tmp_path / "a.db", f"team TEXT, total INTEGER, {PANE.replace('timing TEXT', 'timing INTEGER, timing_ TEXT')}")
    opened(sl.sqlite(tmp_path / "a.db", table="totals"))


def test_a_delta_table_that_lacks_a_column_is_refused(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(tmp_path / "lake", pl.DataFrame({"team": ["red"]}).to_arrow())
    with pytest.raises(SinkError, match="does not fit") as refused:
        opened(sl.delta(tmp_path / "lake"))
    assert refused.value.detail == "total is missing"
    opened(sl.delta(tmp_path / "lake", evolve=True))


@pytest.mark.parametrize("sink", [sl.sqlite, sl.duckdb])
def test_a_path_whose_folders_do_not_exist_is_refused_and_makes_none(
    sink: Callable[[Path], Any], tmp_path: Path
) -> None:
    with pytest.raises(SetupError, match="does not exist") as refused:
        opened(sink(tmp_path / "nonexistent" / "dir" / "a.db"))
    assert "mkdir -p" in refused.value.hint
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    table(tmp_path / "a.db", "x TEXT")
    (tmp_path / "a.db").chmod(0o400)
    with pytest.raises(SinkError):
        opened(sl.sqlite(tmp_path / "a.db", table="totals"))


def test_a_folder_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="cannot open"):
        opened(sl.sqlite(tmp_path))
