"""Hadoop's settings say what they said, and no longer where that was read."""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from strandline.spark.patches import hadoop_conf_trim
from strandline.spark.patches.hadoop_conf_trim import spare_traces


@pytest.fixture
def places(spark: SparkSession) -> Iterator[Any]:
    """Where the settings of this Spark were read, as Hadoop has it, for the time of a test."""
    context: Any = spark.sparkContext
    conf = context._jsc.hadoopConfiguration()
    field = context._jvm.java.lang.Class.forName(hadoop_conf_trim._CONFIGURATION).getDeclaredField("updatingResource")
    field.setAccessible(True)
    # Each of our sessions begins so.
    assert not conf.getPropertySources("fs.defaultFS")
    conf.reloadConfiguration()
    assert conf.size() > 0
    assert conf.getPropertySources("fs.defaultFS")
    yield field
    field.set(conf, context._jvm.java.util.concurrent.ConcurrentHashMap())


def said(spark: SparkSession) -> dict[str, str]:
    conf: Any = spark.sparkContext._jsc.hadoopConfiguration()
    found, entries = {}, conf.iterator()
    while entries.hasNext():
        entry = entries.next()
        found[entry.getKey()] = entry.getValue()
    return found


def test_a_setting_says_the_same_unless_it_is_of_yarn_and_nobody_has_said_it(spark: SparkSession, places: Any) -> None:
    conf: Any = spark.sparkContext._jsc.hadoopConfiguration()
    conf.set("yarn.acl.enable", "perhaps")
    before = said(spark)
    assert len(before) > 100
    assert "yarn.nodemanager.vmem-check-enabled" in before
    spare_traces(spark)
    after = said(spark)
    assert after["yarn.acl.enable"] == "perhaps"
    assert after == {key: value for key, value in before.items() if key in after}
    gone = before.keys() - after.keys()
    assert len(gone) > 100
    assert all(key.startswith("yarn.") for key in gone)
    assert not conf.getPropertySources("fs.defaultFS")
    conf.unset("yarn.acl.enable")


def test_a_setting_can_still_be_made(spark: SparkSession, places: Any) -> None:
    spare_traces(spark)
    conf: Any = spark.sparkContext._jsc.hadoopConfiguration()
    conf.set("strandline.test", "yes")
    assert spark.sparkContext._jvm.org.apache.hadoop.conf.Configuration(conf).get("strandline.test") == "yes"  # type: ignore[union-attr]
    conf.unset("strandline.test")
    assert conf.get("strandline.test") is None


def test_a_hadoop_that_has_no_such_place_keeps_it(
    spark: SparkSession, places: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hadoop_conf_trim, "_CONFIGURATION", "org.apache.hadoop.conf.NoSuchConfiguration")
    spare_traces(spark)
    conf: Any = spark.sparkContext._jsc.hadoopConfiguration()
    assert conf.getPropertySources("fs.defaultFS")
