"""One Spark for all tests of this process, wherever they are."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def archive_if_there() -> str:
    """Return the options of a JVM that uses the archive of classes if there is one, and else leaves none behind.

    To leave one takes twice the CPU time of a start, and a JVM that ends with the tests is too late for it.
    """
    from strandline.spark.launch.session import JAVA, with_archive  # noqa: PLC0415
    from strandline.spark.launch.slim_spark_home import slim_home  # noqa: PLC0415

    home = slim_home()
    found = home is not None and "SharedArchiveFile" in with_archive({}, home).get(JAVA, "")
    return "" if found else "-Xshare:auto"


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
        # Thousands of rows are not worth the JVM's second compiler, which would take a core from the other tests.
        alone = {JAVA: f"{WITHOUT_ROWS[JAVA]} {archive_if_there()}".strip()}
        session = start_session("strandline tests", log=spark_log, jars=True, overrides=alone)
        yield session
        session.stop()
