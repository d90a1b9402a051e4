"""A job that many tests look at."""

import pytest
from pyspark.sql import SparkSession

from tests.spark.damaged import Made, make


@pytest.fixture(scope="session")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A small job's folder after a few batches, to be damaged and looked at, and put back."""
    return make(spark, tmp_path_factory.mktemp("made"))
