"""One Spark for all tests of this process."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from strandline.spark.java import find_java
from strandline.spark.session import JAVA, WITHOUT_ROWS, start_session
from tests.spark.damaged import Made, make


@pytest.fixture(scope="session")
def spark_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the JVM says, in the folder of the test run."""
    return tmp_path_factory.mktemp("spark") / "spark.log"


@pytest.fixture(scope="session")
def spark(spark_log: Path) -> Iterator[SparkSession]:
    """A session as a job of ours starts it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(find_java().home))
        # Thousands of rows are not worth the JVM's second compiler, which would take a core from the other tests; and
        # this JVM ends with the tests, when it is too late to leave an archive of its classes behind.
        alone = {JAVA: f"{WITHOUT_ROWS[JAVA]} -Xshare:auto"}
        session = start_session("strandline tests", log=spark_log, jars=True, overrides=alone)
        yield session
        session.stop()


@pytest.fixture(scope="session")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A small job's folder after a few batches, to be damaged and looked at, and put back."""
    return make(spark, tmp_path_factory.mktemp("made"))
