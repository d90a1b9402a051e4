"""One Spark for all tests of this process, wherever they are."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the JVM says, in the folder of the test run."""
    return tmp_path_factory.mktemp("spark") / "spark.log"


@pytest.fixture(scope="session")
def spark(spark_log: Path) -> Iterator["SparkSession"]:
    """A session as a job of ours starts it."""
    # Not at the top: most tests do without a JVM, and need not wait for what speaks to one.
    from strandline.spark.launch.find_java import find_java  # noqa: PLC0415
    from strandline.spark.launch.session import JAVA, WITHOUT_ROWS, start_session  # noqa: PLC0415

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(find_java().home))
        # Thousands of rows are not worth the JVM's second compiler, which would take a core from the other tests; and
        # this JVM ends with the tests, when it is too late to leave an archive of its classes behind.
        alone = {JAVA: f"{WITHOUT_ROWS[JAVA]} -Xshare:auto"}
        session = start_session("strandline tests", log=spark_log, jars=True, overrides=alone)
        yield session
        session.stop()
