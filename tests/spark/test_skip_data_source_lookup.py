"""Spark is told that there are no Python data sources to be found, where that is so."""

from collections.abc import Iterator
from pkgutil import ModuleInfo
from typing import Any

import pytest
from pyspark.sql import SparkSession

from strandline.spark.patches import skip_data_source_lookup as lookup
from strandline.spark.patches.skip_data_source_lookup import skip_data_source_lookup
from strandline.spark.patches.switch import is_on

pytestmark = pytest.mark.skipif(not is_on("source_lookup"), reason="the patch is switched off")


@pytest.fixture
def known(spark: SparkSession) -> Iterator[Any]:
    """What Spark has found so far: nothing yet, for the time of a test."""
    jvm: Any = spark.sparkContext._jvm
    manager = jvm.java.lang.Class.forName(lookup._MANAGER)
    field, the_one = manager.getDeclaredField("dataSourceBuilders"), manager.getField("MODULE$").get(None)
    field.setAccessible(True)
    before = field.get(the_one)
    field.set(the_one, getattr(getattr(jvm.scala, "None$"), "MODULE$"))
    yield lambda: field.get(the_one)
    field.set(the_one, before)


def test_where_there_are_none_spark_need_not_look(spark: SparkSession, known: Any) -> None:
    assert known().isEmpty()
    skip_data_source_lookup(spark)
    assert known().isDefined()
    assert known().get().isEmpty()


def test_where_there_is_one_spark_looks_for_itself(
    spark: SparkSession, known: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [ModuleInfo(None, name, ispkg=True) for name in ("polars", "pyspark_of_others")]  # type: ignore[arg-type]
    monkeypatch.setattr(lookup, "iter_modules", lambda: found)
    skip_data_source_lookup(spark)
    assert known().isEmpty()


def test_what_spark_has_found_is_left(spark: SparkSession, known: Any) -> None:
    skip_data_source_lookup(spark)
    first = known()
    skip_data_source_lookup(spark)
    assert known().equals(first)


def test_a_spark_that_has_no_such_place_searches(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "_MANAGER", "org.apache.spark.NoSuchManager")
    skip_data_source_lookup(spark)
