"""Records that are long: they cross to Python in Arrow batches of bounded size, whatever they hold together."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import strandline as sl
from strandline.plan.compile import to_stages
from strandline.spark.launch.session import (
    BYTES_PER_BATCH,
    OF_RECORDS,
    ROWS_PER_BATCH,
    WITHOUT_ROWS,
    of_records,
    settings,
)
from strandline.spark.run import session_settings

MEGABYTES = 72
BOUND = int(OF_RECORDS[BYTES_PER_BATCH])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A file of lines of one megabyte each."""
    made = tmp_path / "lines"
    made.mkdir()
    with (made / "long.json").open("w") as file:
        for number in range(MEGABYTES):
            record = {"team": f"t{number % 2}", "at": "2024-05-01T12:00:00Z", "note": "x" * 2**20}
            file.write(json.dumps(record) + "\n")
    return made


def totals(folder: Path) -> sl.Pipeline:
    return (
        sl.read(sl.files(str(folder), sl.json("team string, at timestamp")))
        .event_time("at", sl.bounded(seconds=1))
        .key_by("team")
        .window(sl.tumbling(minutes=1))
        .aggregate(plays=sl.count())
        .write(sl.discard())
    )


def sizes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pa.array([batch.nbytes])], ["bytes"])


@pytest.mark.spark
def test_long_records_cross_in_batches_of_bounded_size(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    session = spark.newSession()
    lines = session.read.text(str(folder)).coalesce(1)
    whole = [row.bytes for row in lines.mapInArrow(sizes, "bytes long").collect()]
    for name, value in OF_RECORDS.items():
        session.conf.set(name, value)
    parts = [row.bytes for row in lines.mapInArrow(sizes, "bytes long").collect()]
    assert max(whole) > BOUND, "without the bound, some batch is larger"
    assert max(parts) < BOUND + 2**21
    assert sum(parts) > MEGABYTES * 2**20
    job = totals(folder).run(session, checkpoint=tmp_path / "checkpoint", available_now=True)
    job.await_end()
    assert job.counts.read == job.counts.contributed == MEGABYTES


def test_a_session_of_ours_has_the_bound_where_records_are_read_and_only_there(tmp_path: Path) -> None:
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / "only Spark unpacks it.json.snappy").touch()
    columns = sl.read(sl.files(str(tmp_path), "team string, at timestamp", format="parquet"))
    assert session_settings(to_stages(totals(tmp_path / "packed").root)) == OF_RECORDS
    assert session_settings(to_stages(totals(tmp_path).root)) == WITHOUT_ROWS
    assert session_settings(to_stages(columns.where("team > 'a'").write(sl.discard()).root)) == {}
    assert session_settings(to_stages(columns.write(sl.discard()).root)) == WITHOUT_ROWS
    assert int(settings(2)[BYTES_PER_BATCH]) == 2**31 - 1, "Spark asks for no size at this number only"


def test_where_it_is_known_how_long_a_record_can_be_so_many_cross_at_once_as_fit() -> None:
    longest = 1_048_588
    many = int(of_records(longest)[ROWS_PER_BATCH])
    assert BYTES_PER_BATCH not in of_records(longest), "to be asked with every record"
    assert many * longest < 2**31 <= (many + 1) * longest
    assert of_records(10)[ROWS_PER_BATCH] == settings(2)[ROWS_PER_BATCH], "no more than any others"


@pytest.mark.parametrize("longest", [None, 20 * 2**20])
def test_where_it_is_not_known_or_only_few_would_fit_bytes_are_counted(longest: int | None) -> None:
    assert of_records(longest) == OF_RECORDS
