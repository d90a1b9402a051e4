"""Folders read by a real Spark: files in blocks, files that cannot be read, and files that are gone."""

import bz2
import dataclasses
import gzip
import json
import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import strandline as sl
from strandline.connectors.files import Files
from strandline.errors import LostRecords, RunError, SetupError
from strandline.model.ddl import parse
from strandline.spark.job import Job
from strandline.spark.patches.switch import is_on

pytestmark = pytest.mark.spark
COLUMNS = "n long, word string, at timestamp"
TIME = "2024-05-01T12:00:00Z"


def ask(database: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(query).fetchall()


def read_all(source: Files, spark: SparkSession, home: Path, steps: Any = lambda read: read) -> Job:
    """What is there now, into a table beside the job."""
    rows = steps(sl.read(source)).write(sl.sqlite(home / "rows.db", table="rows"))
    job: Job = rows.run(spark, checkpoint=home / "job", available_now=True)
    assert job.await_end(120)
    return job


def test_a_file_in_blocks_is_read_whole_each_line_in_its_place_and_what_waits_is_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    many = 60_000  # 12 MB, of which two cores take half each
    lines = ["n,word,at", *(f"{n},{'long ' * 35},{TIME}" for n in range(many))]
    lines[many // 2 + 5] = "none,at,all"
    (folder / "big one.csv").write_text("\n".join(lines))
    (folder / "_draft.csv").write_text("not,yet,whole")
    (folder / "notes.txt").write_text("for people")
    source = sl.files(folder, sl.csv(COLUMNS), header=True, pattern="*.csv", files_per_batch=1)

    job = read_all(source, spark, tmp_path, lambda read: read.where("n % 1000 = 999").select("n"))
    assert job.counts.read - job.counts.filtered == many // 1000 + 1
    assert job.counts.dead == 1
    found = ask(tmp_path / "rows.db", "SELECT count(*), count(DISTINCT n), sum(n) FROM rows")
    assert found == [(many // 1000, many // 1000, sum(range(999, many, 1000)))]
    ((file, line, raw),) = ask(tmp_path / "rows.db", "SELECT source_partition, source_offset, raw FROM rows_dead")
    assert file.endswith("/in/big%20one.csv")
    assert raw == b"none,at,all"
    assert line >= many // 2  # its number, or where its block starts and its number in there
    assert job.backlog()[source.name].files == 0
    (folder / "more.csv").write_text("n,word,at")
    waiting = job.backlog()[source.name]
    assert (waiting.files, waiting.bytes) == (1, 9)
    assert waiting.oldest == (folder / "more.csv").stat().st_mtime_ns // 1_000_000


def test_elements_of_parquet_say_which_file_they_came_from_whatever_its_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    names = ["plain", "two words", "größe", "100%", "%25", "a+b", "q?x=1", "h#1", "[1]{2}", "日本", "x" * 200]
    for number, name in enumerate(names):
        rows = {"n": [number, number], "at": [datetime(2024, 5, 1, 12, tzinfo=UTC), None]}
        pl.DataFrame(rows, schema={"n": pl.Int64, "at": pl.Datetime("us", "UTC")}).write_parquet(
            folder / f"{name}.parquet"
        )
    source = sl.files(folder, "n long, at timestamp", format="parquet")
    read_all(source, spark, tmp_path, lambda read: read.event_time("at", sl.bounded(seconds=1)))
    found = ask(tmp_path / "rows.db", "SELECT source_partition, source_offset, raw FROM rows_dead")
    assert {offset for _, offset, _ in found} == {1}
    said = {json.loads(raw)["n"]: Path(unquote(urlsplit(file).path)).stem for file, _, raw in found}
    assert said == dict(enumerate(names))


def test_what_python_reads_by_itself_is_what_spark_reads_and_one_goes_on_where_the_other_was(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    columns = "n long, small int, share double, word string, good boolean, day date, at timestamp, missing string"
    noon = datetime(2024, 5, 1, 12, 0, 0, 123456, tzinfo=UTC)
    rows = pl.DataFrame(
        {
            "n": pl.Series([1, None, 3, 4], dtype=pl.Int32),
            "small": pl.Series([1, 2, None, -4], dtype=pl.Int16),
            "share": pl.Series([0.5, float("nan"), None, float("-inf")], dtype=pl.Float32),
            "word": ["one", "", None, "größe"],
            "good": [True, False, None, True],
            "day": [noon.date(), None, noon.date(), noon.date()],
            "at": [noon, noon, None, datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)],
            "unasked": [1, 2, 3, 4],
        }
    )

    def put(name: str, unit: Any) -> None:
        rows.with_columns(pl.col("at").dt.cast_time_unit(unit)).write_parquet(
            folder / f"{name}.parquet", row_group_size=2
        )

    def told(name: str, *, by_spark: tuple[bool, ...]) -> tuple[list[Any], list[Any]]:
        for file in folder.iterdir():
            file.unlink()
        home = tmp_path / name
        home.mkdir()
        for number, spark_reads in enumerate(by_spark):
            put(f"{number} micro", "us")
            put(f"{number} milli", "ms")
            monkeypatch.setattr(Files, "is_plain", not spark_reads)
            source = sl.files(folder, columns, format="parquet")
            read_all(source, spark, home, lambda read: read.event_time("at", sl.bounded(seconds=1)))
        shown = ask(home / "rows.db", f"SELECT {', '.join(parse(columns))} FROM rows")
        letters = ask(home / "rows.db", "SELECT source_partition, source_offset, reason, raw FROM rows_dead")
        return sorted(map(repr, shown)), sorted(letters)

    mixed = told("mixed", by_spark=(True, False))
    assert len(mixed[0]) == 12
    assert [offset for _, offset, _, _ in mixed[1]] == [2] * 4
    assert mixed == told("by-spark", by_spark=(True, True))


LINES: dict[str, tuple[Any, bytes]] = {
    "json": (
        sl.json("n long, word string"),
        b'{"n": 1, "word": "gr\xc3\xb6\xc3\x9fe"}\r\n\n{"n": 2}\r{"n": 3, torn\nnull\n \n{"n": 4}',
    ),
    "csv": (sl.csv("n long, word string"), b"n,word\r\n1,one\n\n2,\nnone,at all\n3,\xff\n4,last"),
    "text": (sl.text("word"), b"\xef\xbb\xbfone\r\n\r\rtwo\n\n\xff\nthree"),
    "raw": (sl.raw("word"), b"\xef\xbb\xbfone\0\r\n\r\rtwo\n\n\xff\nthree\n"),
}


@pytest.mark.parametrize("kind", [*LINES])
def test_lines_that_python_reads_are_those_that_spark_reads(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    columns, content = LINES[kind]
    folder = tmp_path / "in"
    folder.mkdir()
    source = sl.files(folder, columns, header=kind == "csv")

    def put(name: str) -> None:
        (folder / f"{name} 1.txt").write_bytes(content)
        (folder / f"{name} 2.txt.gz").write_bytes(gzip.compress(content))
        (folder / f"{name} 3.txt.bz2").write_bytes(bz2.compress(content))
        (folder / f"{name} 4.txt.zst").write_bytes(pa.Codec("zstd").compress(content, asbytes=True))
        (folder / f"{name} none.txt").touch()

    def told(name: str, *by_python: bool, read: Files = source) -> tuple[list[str], list[Any]]:
        for file in folder.iterdir():
            file.unlink()
        home = tmp_path / name
        home.mkdir()
        for number, plain in enumerate(by_python):
            put(f"{number}")
            with monkeypatch.context() as patch:
                patch.setattr(Files, "is_plain", plain)
                if not plain:
                    patch.setattr(Files, "pieces", lambda *_: None)
                read_all(read, spark, home)
        shown = ask(home / "rows.db", f"SELECT {', '.join(columns.columns)} FROM rows")
        if kind == "raw":  # nothing is wrong with bytes
            return sorted(map(repr, shown)), []
        letters = ask(home / "rows.db", "SELECT source_partition, source_offset, reason, detail, raw FROM rows_dead")
        assert letters
        return sorted(map(repr, shown)), sorted(letters)

    mixed = told("mixed", True, False)
    assert mixed[0]
    assert mixed == told("by Spark", False, False)
    assert mixed == told("by Python", True, True)
    ending = dataclasses.replace(source, ends=True)
    assert told("at once by Python", True, read=ending) == told("at once by Spark", False, read=ending)


def test_a_file_that_cannot_be_read_or_is_gone_stops_the_job_and_going_on_is_a_choice(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    torn = folder / "torn.json.gz"
    torn.write_bytes(gzip.compress(b'{"n": 1}\n' * 9)[:20])
    source = sl.files(folder, sl.json("n long"))
    with pytest.raises(RunError, match="/in/torn.json.gz cannot be read") as refused:
        read_all(source, spark, tmp_path)
    assert "Truncated" in refused.value.detail
    torn.unlink()
    with pytest.raises(LostRecords, match="1 files of files") as lost:
        read_all(source, spark, tmp_path)
    assert "torn.json.gz vanished" in lost.value.detail
    (folder / "whole.json").write_text('{"n": 2}\n')
    os.utime(folder / "whole.json", (1, 1))  # Spark would not look at so old a file
    read_all(sl.files(folder, sl.json("n long"), on_lost="continue"), spark, tmp_path)
    assert "torn.json.gz vanished" in caplog.text
    assert ask(tmp_path / "rows.db", "SELECT n FROM rows") == [(2,)]


@pytest.mark.skipif(not is_on("local_files"), reason="Hadoop skips such files without an error")
@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_a_file_whose_name_nobody_can_say_stops_the_job_and_going_on_is_a_choice(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    rows = pl.DataFrame({"n": [2]})
    (rows.write_ndjson if kind == "json" else rows.write_parquet)(folder / f"whole.{kind}")
    latin = os.fsencode(folder / "caf") + b"\xe9." + kind.encode()
    Path(os.fsdecode(latin)).write_bytes((folder / f"whole.{kind}").read_bytes())
    options: dict[str, Any] = {"columns": sl.json("n long")} if kind == "json" else {"columns": "n long"}
    with pytest.raises(LostRecords, match="1 files of files") as lost:
        read_all(sl.files(folder, **options), spark, tmp_path)
    assert f"caf\ufffd.{kind} has a name that is not UTF-8: rename it" in lost.value.detail
    with pytest.raises(LostRecords, match="1 files of files"):
        sl.files(folder, **options).extent(spark)
    read_all(sl.files(folder, **options, on_lost="continue"), spark, tmp_path)
    assert "not UTF-8" in caplog.text
    assert ask(tmp_path / "rows.db", "SELECT n FROM rows") == [(2,)]
    Path(os.fsdecode(latin)).rename(folder / f"named.{kind}")
    read_all(sl.files(folder, **options), spark, tmp_path)
    assert ask(tmp_path / "rows.db", "SELECT n FROM rows") == [(2,), (2,)]


def test_a_file_that_was_read_may_be_moved_away(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    source = sl.files(folder, sl.json("n long, at timestamp"))
    seconds = lambda read: read.event_time("at", sl.bounded(seconds=1)).where("n > 0")  # noqa: E731
    (folder / "first.json").write_text(json.dumps({"n": 1, "at": TIME}))
    job = read_all(source, spark, tmp_path, seconds)
    (folder / "first.json").unlink()
    later = read_all(source, spark, tmp_path, seconds)
    assert (job.counts.read, later.counts.read) == (1, 0)
    (folder / "second.json").write_text(json.dumps({"n": 2, "at": TIME}))
    read_all(source, spark, tmp_path, seconds)
    assert ask(tmp_path / "rows.db", "SELECT n FROM rows ORDER BY n") == [(1,), (2,)]


def test_a_folder_that_is_not_there_is_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    source = sl.files(tmp_path / "nowhere", sl.json("n long"))
    with pytest.raises(SetupError, match="cannot read the folder"):
        read_all(source, spark, tmp_path)
