"""Lookup tables are checked before Spark starts: they exist, fit, and accept the credentials."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import psycopg
import pytest
import valkey as library
from pyspark.sql import SparkSession

import strandline as sl
from strandline.errors import LookupFailed, LookupUnavailable, SetupError
from strandline.plan.compile import to_stages
from strandline.services.service import Service
from strandline.spark.check_lookups import check_lookups
from tests.errors_zoo.animals import scores
from tests.plan.endpoints import PaperSink

USERS = "user string, name string"


def enriched(table: Any) -> Any:
    return scores().enrich(table).on("user").write(PaperSink())


def check(table: Any) -> None:
    check_lookups(to_stages(enriched(table).root), None)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as made, made:
        made.execute("CREATE TABLE users (user TEXT, name TEXT, age INTEGER)")
    return tmp_path / "shop.db"


def test_a_table_that_fits_is_taken(shop: Path) -> None:
    check(sl.lookup_sqlite(shop, USERS, table="users"))


def test_a_job_with_an_unknown_table_is_refused_and_no_spark_starts(shop: Path, tmp_path: Path) -> None:
    if SparkSession.getActiveSession() is not None:
        pytest.skip("another test of this process has started Spark")
    rows = sl.read(sl.files(tmp_path / "in", "user string, at timestamp"))
    table = sl.lookup_sqlite(shop, USERS, table="usrs")
    pipeline = rows.enrich(table).on("user").write(sl.sqlite(tmp_path / "out.db"))
    with pytest.raises(LookupFailed, match="has no table 'usrs'"):
        pipeline.run(checkpoint=tmp_path / "job")
    assert SparkSession.getActiveSession() is None


def test_a_missing_file_is_refused_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(LookupFailed, match="nowhere.db cannot be read"):
        check(sl.lookup_sqlite(tmp_path / "nowhere.db", USERS, table="users"))
    assert not (tmp_path / "nowhere.db").exists()


def test_an_unknown_column_and_another_type_are_refused(shop: Path) -> None:
    with pytest.raises(LookupFailed, match="has no column 'nme'.*did you mean 'name'"):
        check(sl.lookup_sqlite(shop, "user string, nme string", table="users"))
    with pytest.raises(LookupFailed, match="the column 'age' of .* is INTEGER, and the lookup reads it as string"):
        check(sl.lookup_sqlite(shop, "user string, age string", table="users"))


def test_a_secret_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_TOKEN", raising=False)
    with pytest.raises(SetupError, match="the secret env:NO_TOKEN is missing"):
        check(sl.lookup_http("https://localhost/users/{user}", USERS, token="env:NO_TOKEN"))


@pytest.mark.parametrize(
    "table",
    [
        lambda: sl.lookup_postgres("users", USERS, dsn="postgresql://me@127.0.0.1:9/shop"),
        lambda: sl.lookup_valkey("valkey://127.0.0.1:9", USERS, key="user:{user}"),
    ],
)
def test_a_server_that_is_away_is_named_in_time(table: Any) -> None:
    begun = time.monotonic()
    with pytest.raises(LookupUnavailable, match=r"127\.0\.0\.1:9.* cannot be reached"):
        check(table())
    assert time.monotonic() - begun < 5


@pytest.mark.services
def test_postgres_refuses_what_does_not_fit_and_shows_no_secret(
    postgres: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(postgres.address, autocommit=True) as made:
        made.execute("DROP TABLE IF EXISTS odd_users")
        made.execute('CREATE TABLE odd_users ("user" uuid, name text, "100% ""sure""" bigint, secret text)')
        made.execute("DROP ROLE IF EXISTS reader")
        made.execute("CREATE ROLE reader LOGIN")
    dsn = postgres.address
    check_of = sl.lookup_postgres("odd_users", 'name string, `100% "sure"` long', dsn=dsn)
    check_of.check(("name",))
    opened = check_of.open(("name",), ('100% "sure"',))
    assert opened.rows(pl_keys("a", "b\0c")).height == 0
    opened.close()
    with pytest.raises(LookupFailed, match="the key 'user' of .* is a uuid"):
        check(sl.lookup_postgres("odd_users", USERS, dsn=dsn))
    with pytest.raises(LookupFailed, match="has no table 'nobody'"):
        check(sl.lookup_postgres("nobody", USERS, dsn=dsn))
    monkeypatch.setenv("SHOP_PASSWORD", "hunter2-and-more")
    for wrong in ("stranger", "reader"):
        place = psycopg.conninfo.make_conninfo(dsn, user=wrong)
        with pytest.raises(LookupFailed) as refused:
            sl.lookup_postgres("odd_users", "name string", dsn=place, password="env:SHOP_PASSWORD").check(("name",))
        assert "hunter2" not in str(refused.value)
        assert not isinstance(refused.value, LookupUnavailable)


@pytest.mark.services
def test_a_hash_of_another_kind_and_a_value_that_does_not_fit_are_set_aside(valkey: Service) -> None:
    client: Any = library.Valkey.from_url(valkey.address)
    client.set("odd:ann", "no hash")
    client.hset("odd:bob", mapping={"age": "old"})
    client.hset("odd:eve", mapping={"age": "30"})
    client.close()
    opened = sl.lookup_valkey(valkey.address, "user string, age long", key="odd:{user}").open(("user",), ("age",))
    rows = opened.rows(pl_keys("ann", "bob", "eve", "kim", name="user"))
    opened.close()
    assert rows.rows() == [
        ("ann", None, "the key is no hash"),
        ("bob", None, "the table's column 'age' has a bytes that is no long"),
        ("eve", 30, None),
    ]


def pl_keys(*keys: str, name: str = "name") -> Any:
    return pl.DataFrame({name: [*keys]})
