"""What is compiled of Java is what its sources say now."""

from java_classes import compiled
from pyspark.sql import SparkSession


def test_what_is_compiled_is_what_its_sources_say(spark: SparkSession) -> None:
    for path, data in compiled(spark.sparkContext._jvm).items():
        assert path.read_bytes() == data, f"{path.name}: type .venv/bin/python scripts/java_classes.py"
