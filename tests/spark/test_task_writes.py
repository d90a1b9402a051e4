"""Elements that tasks put where a sink keeps them: as many as came, once, whatever fails on the way."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyspark.sql import SparkSession

import strandline as sl
from strandline.connectors.files.sink import Folder, OpenFolder
from strandline.errors import SinkError, SinkUnavailable
from strandline.kernel.output import Part
from strandline.plan.stages import Deliver
from strandline.ports.file_stamps import WORTH_A_FILE
from strandline.ports.sinks import Stamp
from strandline.spark.delivery.deliver import Delivered

pytestmark = pytest.mark.spark

COLUMNS = "n long, word string"
LONG = "as long as a line of a log usually is, and then some more of it"
MANY = 2 * WORTH_A_FILE // len(LONG)


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    """Three files: two with many rows, one with a few."""
    folder = tmp_path / "in"
    folder.mkdir()
    for file, many in enumerate([MANY, MANY, 10]):
        first = file * MANY
        pl.DataFrame({"n": range(first, first + many)}).with_columns(word=pl.lit(LONG)).write_parquet(
            folder / f"{file}.parquet"
        )
    return folder


def copied(source: Any, sink: Any, spark: SparkSession, home: Path, **options: Any) -> list[Delivered]:
    heard: list[Delivered] = []
    rows = sl.read(source).where(pl.col("n") % 2 == 0).write(sink)
    job = rows.run(spark, checkpoint=home / "job", listener=heard.append, **options)
    assert job.await_end(120)
    assert (job.counts.read, job.counts.filtered) == (2 * MANY + 10, MANY + 5)
    return heard


@pytest.mark.parametrize("sink", [sl.folder, sl.delta])
@pytest.mark.parametrize("ends", [False, True], ids=["as a stream", "at once"])
def test_elements_are_in_the_sink_once_and_come_to_the_driver_only_where_they_are_few(
    spark: SparkSession, numbers: Path, tmp_path: Path, sink: Any, *, ends: bool
) -> None:
    source = sl.files(numbers, COLUMNS, format="parquet", **({"ends": True} if ends else {"files_per_batch": 3}))
    heard = copied(source, sink(tmp_path / "out"), spark, tmp_path, **({} if ends else {"available_now": True}))
    said = [each.output for each in heard]
    assert sum(part.rows for each in said for part in each.parts) >= MANY
    assert sum(0 if each.panes is None else each.panes.height for each in said) <= 5
    place = tmp_path / "out"
    found = sl.read_manifested(place) if sink is sl.folder else pl.read_delta(str(place))
    assert sorted(found["n"]) == [*range(0, 2 * MANY + 10, 2)]
    assert set(found["word"]) == {LONG}
    shown = [each.some for each in said if each.some is not None]
    assert shown
    assert all(0 < each.height <= 2_000 and set(each["word"]) == {LONG} for each in shown)


@dataclass(frozen=True, slots=True)
class FailsAtFirst:
    """Writes, and says that it could not, until somebody has swept."""

    inner: Any
    swept: str

    def put(self, rows: pl.DataFrame, stamp: Stamp) -> Part | None:
        part: Part | None = self.inner.put(rows, stamp)
        if not Path(self.swept).exists():
            raise SinkUnavailable("the disk is full")
        return part


class FailingFolder(Folder):
    """One that tasks cannot write to the first time a batch is played, however often each tries."""

    def open(self, output: Deliver) -> OpenFolder:
        flag = Path(f"{self.path}.swept")

        class Failing(OpenFolder):
            def writer(self) -> Any:
                return FailsAtFirst(super().writer(), str(flag))

            def swept(self, stamp: Stamp) -> None:
                super().swept(stamp)
                flag.touch()

        return Failing(self, output.keys)


def test_a_batch_that_tasks_cannot_write_waits_and_is_played_again(
    spark: SparkSession, numbers: Path, tmp_path: Path
) -> None:
    source = sl.files(numbers, COLUMNS, format="parquet", files_per_batch=3)
    (heard,) = copied(source, FailingFolder(str(tmp_path / "out")), spark, tmp_path, available_now=True)
    assert not heard.repeated
    assert sorted(sl.read_manifested(tmp_path / "out")["n"]) == [*range(0, 2 * MANY + 10, 2)]


def test_a_folder_that_tasks_cannot_write_to_ends_the_job_and_says_which(
    spark: SparkSession, numbers: Path, tmp_path: Path
) -> None:
    sink = sl.folder(tmp_path / "out")

    def hide(rows: pl.DataFrame) -> pl.DataFrame:
        """The folder's files go, and a file has their place."""
        place = tmp_path / "out" / "panes"
        if place.is_dir():
            place.rename(tmp_path / "hidden")
            place.touch()
        return rows

    source = sl.files(numbers, COLUMNS, format="parquet", files_per_batch=3)
    job = sl.read(source).map(hide, COLUMNS).write(sink).run(spark, checkpoint=tmp_path / "job", available_now=True)
    with pytest.raises(SinkError, match="cannot write to .*out"):
        job.await_end(120)


def test_what_is_let_go_is_counted(spark: SparkSession, numbers: Path, tmp_path: Path) -> None:
    source = sl.files(numbers, COLUMNS, format="parquet", files_per_batch=3)
    (heard,) = copied(source, sl.discard(), spark, tmp_path, available_now=True)
    assert heard.output.panes is None
    assert sum(part.rows for part in heard.output.parts) == MANY + 5
