"""The home of Spark without the archive of its Python package: who gets it, and what workers import."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession

from strandline.spark.launch.slim_spark_home import slim_home, with_spark_home, workers_run_this_python
from strandline.spark.patches.switch import is_on

pytestmark = pytest.mark.skipif(not is_on("slim_home"), reason="the patch is switched off")

LOCAL = {"spark.master": "local[2,4]"}


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_HOME", str(tmp_path / "kept"))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.delenv("SPARK_HOME", raising=False)


def test_it_has_all_that_spark_needs_and_no_archive() -> None:
    home = slim_home()
    assert home is not None
    assert (home / "bin" / "spark-submit").exists()
    assert (home / "jars").samefile(Path(pyspark.__file__).parent / "jars")
    assert not (home / "python").exists()
    assert slim_home() == home


def test_homes_of_packages_that_are_no_more_go_when_one_is_made(tmp_path: Path) -> None:
    homes = tmp_path / "kept" / "spark"
    for name, there in (("gone", tmp_path / "nowhere"), ("another", tmp_path)):
        (homes / name).mkdir(parents=True)
        (homes / name / "jars").symlink_to(there)
        (homes / name / "spark-1.jsa").touch()
    home = slim_home()
    assert home is not None
    assert {each.name for each in homes.iterdir()} == {"another", home.name}


@pytest.mark.parametrize(
    ("variable", "settings"),
    [
        (("SPARK_HOME", "/opt/spark"), LOCAL),
        (("PYSPARK_PYTHON", "/usr/bin/another"), LOCAL),
        (None, LOCAL | {"spark.pyspark.python": "/usr/bin/another"}),
        (None, {"spark.master": "spark://there:7077"}),
        (None, {}),
    ],
)
def test_who_has_another_spark_or_python_or_a_cluster_keeps_it(
    variable: tuple[str, str] | None, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable is not None:
        monkeypatch.setenv(*variable)
    assert not workers_run_this_python(settings)


def test_a_package_that_other_processes_would_not_find_is_left_in_its_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyspark" / "jars").mkdir(parents=True)
    monkeypatch.setattr(pyspark, "__file__", str(tmp_path / "pyspark" / "__init__.py"))
    assert not workers_run_this_python(LOCAL)


def test_where_nothing_can_be_kept_it_goes_without(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("not a folder")
    assert slim_home() is None


def test_the_switch_turns_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert workers_run_this_python(LOCAL)
    monkeypatch.setenv("STRANDLINE_PATCHES", "-slim_home")
    assert slim_home() is None


def test_the_environment_is_afterwards_what_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with with_spark_home(tmp_path):
        assert os.environ["SPARK_HOME"] == str(tmp_path)
    assert "SPARK_HOME" not in os.environ
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    with with_spark_home(None):
        assert os.environ["SPARK_HOME"] == "/opt/spark"


@pytest.mark.spark
def test_workers_import_the_package_that_is_installed(spark: SparkSession) -> None:
    def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyspark as seen  # noqa: PLC0415 - there, and not here

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"file": [seen.__file__]})

    (row,) = spark.range(0, 1, 1, 1).mapInArrow(where, "file string").collect()
    assert row.file == pyspark.__file__
