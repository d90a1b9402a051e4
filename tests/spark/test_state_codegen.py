"""Threads of Spark that know no session compile nothing; sessions do as they are told."""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from strandline.spark.patches import state_codegen
from strandline.spark.patches.state_codegen import disable_state_codegen
from strandline.spark.patches.switch import is_on

pytestmark = pytest.mark.skipif(not is_on("state_codegen"), reason="the patch is switched off")


@pytest.fixture
def mode(spark: SparkSession) -> Iterator[Any]:
    """The setting, with Spark's own default for the time of a test."""
    jvm: Any = spark.sparkContext._jvm
    entry = getattr(getattr(jvm.org.apache.spark.sql.internal, "SQLConf$"), "MODULE$").CODEGEN_FACTORY_MODE()
    modes = getattr(getattr(jvm.org.apache.spark.sql.catalyst.expressions, "CodegenObjectFactoryMode$"), "MODULE$")
    default = entry.getClass().getDeclaredField("_defaultValue")
    default.setAccessible(True)
    before = default.get(entry)
    # Each of our sessions begins so.
    assert entry.defaultValueString() == "NO_CODEGEN"
    default.set(entry, modes.FALLBACK())
    yield entry
    default.set(entry, before)


def test_without_a_session_nothing_is_compiled(spark: SparkSession, mode: Any) -> None:
    assert mode.defaultValueString() == "FALLBACK"
    disable_state_codegen(spark)
    assert mode.defaultValueString() == "NO_CODEGEN"


def test_a_session_says_itself_what_it_wants(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.codegen.factoryMode") == "FALLBACK"


def test_a_spark_that_has_no_such_place_compiles(
    spark: SparkSession, mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_codegen, "_CONF", "NoSuchConf")
    disable_state_codegen(spark)
    assert mode.defaultValueString() == "FALLBACK"
