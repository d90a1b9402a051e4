"""Threads of Spark that know no session compile nothing; sessions do as they are told."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from strandline.spark import interpreted
from strandline.spark.interpreted import spare_code


def mode(spark: SparkSession) -> Any:
    jvm: Any = spark.sparkContext._jvm
    return getattr(getattr(jvm.org.apache.spark.sql.internal, "SQLConf$"), "MODULE$").CODEGEN_FACTORY_MODE()


def test_in_a_spark_of_ours_nothing_is_compiled_without_a_session(spark: SparkSession) -> None:
    assert mode(spark).defaultValueString() == "NO_CODEGEN"


def test_a_session_says_itself_what_it_wants(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.codegen.factoryMode") == "FALLBACK"


def test_a_spark_that_has_no_such_place_compiles(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreted, "_CONF", "NoSuchConf$")
    spare_code(spark)
