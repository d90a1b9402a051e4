"""Bounded input on a real Spark: folders, tables and slices of topics end, and tell what a stream of them tells."""

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import deltalake
import polars as pl
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

import strandline as sl
from strandline.connectors.kafka import Kafka
from strandline.errors import CheckpointMismatch, InvalidStep, LostRecords, SetupError
from strandline.observe.metrics.history import History
from strandline.services.service import Service
from strandline.spark.job import Job

pytestmark = pytest.mark.spark
COLUMNS = "team string, score long, at timestamp"
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
FILES, EACH = 3, 100


def scores(seed: int = 5) -> list[dict[str, Any]]:
    """Scores in the order in which they came, none more than ten seconds late."""
    chance = Random(seed)
    return [
        {
            "team": chance.choice(["blue", "red", "jade"]),
            "score": chance.randrange(10),
            "at": (NOON + timedelta(seconds=number - chance.randrange(10))).isoformat(),
        }
        for number in range(FILES * EACH)
    ]


def in_files(folder: Path) -> Path:
    folder.mkdir()
    rows = scores()
    for number in range(FILES):
        lines = [json.dumps(row) for row in rows[number * EACH : (number + 1) * EACH]]
        file = folder / f"{number} of {FILES}.json"
        file.write_text("\n".join([*lines, "none of it"] if number == 2 else lines))
        os.utime(file, (number, number))  # oldest first
    return folder


def ask(database: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(query).fetchall()


def totals(read: sl.Elements, home: Path) -> sl.Pipeline:
    """Many windows over one source, and a step over the panes of another: each to a table of its own."""
    timed = read.event_time("at", sl.bounded(seconds=10))
    windows: dict[str, Any] = {"tumbling": sl.tumbling(seconds=20), "sessions": sl.session("3s")}
    panes = {
        name: timed.key_by("team").window(window).aggregate(
            total=sl.sum("score"), many=sl.count(), users=sl.count_distinct("score"), firsts=sl.first("score")
        )
        for name, window in windows.items()
    }  # fmt: skip
    early = (
        timed.key_by("team").window(sl.tumbling(seconds=20))
        .trigger(sl.after_watermark(early=sl.after_count(3), late=sl.after_count(1)))
        .accumulate(sl.retracting).aggregate(total=sl.sum("score"))
    )  # fmt: skip
    panes["early"] = early
    panes["best"] = panes["tumbling"].key_by("team").window(sl.tumbling(minutes=1)).aggregate(best=sl.max("total"))
    outputs = [
        each.write(sl.sqlite(home / "totals.db", table=name, mode="upsert")) for name, each in panes.items()
    ]  # fmt: skip
    return sl.together(*outputs)


NAMES = ("tumbling", "sessions", "early", "best")


def run(pipeline: sl.Pipeline, spark: SparkSession, home: Path, **options: Any) -> Job:
    job: Job = pipeline.run(spark, checkpoint=home / "job", **options)
    assert job.await_end(240)
    assert job.is_complete
    return job


def held(home: Path) -> dict[str, list[tuple[Any, ...]]]:
    """What stands in every table, without what only tells how it came there."""
    found = {}
    for name in NAMES:
        columns = [row[1] for row in ask(home / "totals.db", f"PRAGMA table_info({name})")]
        told = [each for each in columns if each not in ("batch", "pane_index", "is_first", "nonspeculative_index")]
        found[name] = sorted(ask(home / "totals.db", f"SELECT {', '.join(told)} FROM {name}"))
    return found


def test_a_folder_that_ends_is_one_batch_and_tells_what_a_stream_of_its_files_tells(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = in_files(tmp_path / "in")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    source = sl.files(folder, sl.json(COLUMNS), files_per_batch=1, ends=True)
    job = run(totals(sl.read(source), whole), spark, whole)
    assert job.last is not None
    assert job.last.batch == 0
    assert job.counts.late == 0
    streamed = run(totals(sl.read(source), parts), spark, parts, by_arrival=True)
    assert streamed.counts.late == 0
    assert streamed.last is not None
    assert streamed.last.batch >= FILES  # a batch for each file, and the end
    assert held(whole) == held(parts)
    assert all(held(whole).values())
    assert ask(whole / "totals.db", "SELECT count(*) FROM tumbling_dead") == [(1,)]
    # Asked once more, both know that they have ended; asked for the other way, the folder says how it was begun.
    assert totals(sl.read(source), whole).run(spark, checkpoint=whole / "job").is_complete
    (whole / "job" / "extent.done").unlink()
    with pytest.raises(CheckpointMismatch, match="started the other way"):
        totals(sl.read(source), whole).run(spark, checkpoint=whole / "job", by_arrival=True)
    # A run that was killed before it said so is played again, and the sinks know it.
    again = run(totals(sl.read(source), whole), spark, whole)
    assert again.last is not None
    assert again.last.repeated
    assert held(whole) == held(parts)


def by_team(read: sl.Elements, home: Path) -> sl.Pipeline:
    panes = read.event_time("at", sl.bounded(hours=1)).key_by("team").window(sl.tumbling(days=1))
    sink = sl.sqlite(home / "totals.db", table="totals", mode="upsert")
    return panes.aggregate(total=sl.sum("score"), many=sl.count()).write(sink)


def held_by_team(home: Path) -> list[tuple[Any, ...]]:
    return sorted(ask(home / "totals.db", "SELECT team, total, many FROM totals"))


def expected(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    found = {row["team"]: [each["score"] for each in rows if each["team"] == row["team"]] for row in rows}
    return sorted((team, sum(each), len(each)) for team, each in found.items())


def test_what_does_not_end_as_a_whole_or_has_changed_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    folder = in_files(tmp_path / "in")
    source = sl.files(folder, sl.json(COLUMNS), ends=True)
    other = sl.read(sl.generator(events=5)).select(team="key", score="cast(value as long)", at="at")
    with pytest.raises(InvalidStep, match="ends, and generator"):
        totals(sl.union(sl.read(source), other), tmp_path).run(spark, checkpoint=tmp_path / "mixed")
    with pytest.raises(SetupError, match="by_arrival is for input that ends"):
        sl.read(sl.generator()).write(sl.discard()).run(spark, checkpoint=tmp_path / "live", by_arrival=True)
    extent = source.extent(spark)
    assert len(extent) == FILES
    (folder / f"1 of {FILES}.json").unlink()
    with pytest.raises(LostRecords, match="vanished or changed") as lost:
        source.refuse_changed(extent, spark)
    assert "vanished" in lost.value.detail
    (folder / "empty").mkdir()
    assert sl.files(folder / "empty", sl.json(COLUMNS), ends=True).extent(spark) == []


def test_parquet_and_a_table_of_delta_at_a_version_end_both_ways(spark: SparkSession, tmp_path: Path) -> None:
    rows = pl.DataFrame(scores()).with_columns(pl.col("at").str.to_datetime(time_unit="us", time_zone="UTC"))
    place = tmp_path / "lake"
    for number in range(3):
        part = rows[number * 100 : (number + 1) * 100]
        deltalake.write_deltalake(str(place), part, mode="append", partition_by=["team"])
    deltalake.write_deltalake(str(place), rows[:50], mode="append")  # a version that is not asked for
    source = sl.delta_table(place, COLUMNS, version=2, files_per_batch=2)
    for home, options in ((tmp_path / "whole", {}), (tmp_path / "parts", {"by_arrival": True})):
        run(by_team(sl.read(source), home), spark, home, **options)
        assert held_by_team(home) == expected(scores())
    plain = tmp_path / "plain"
    plain.mkdir()
    for number in range(3):
        rows[number::3].write_parquet(plain / f"{number}.parquet")
    run(by_team(sl.read(sl.files(plain, COLUMNS, ends=True)), tmp_path), spark, tmp_path)
    assert held_by_team(tmp_path) == expected(scores())
    assert sl.delta_table(place, COLUMNS).extent(spark) == 3
    with pytest.raises(InvalidStep, match="no column 'points'"):
        sl.delta_table(place, "points long").extent(spark)
    with pytest.raises(SetupError, match="no Delta Lake table"):
        sl.delta_table(tmp_path / "none", COLUMNS).extent(spark)


def test_a_slice_of_a_topic_ends_by_offset_or_by_time_both_ways(
    spark: SparkSession, tmp_path: Path, kafka: Service, new_topic: Callable[..., str]
) -> None:
    topic, rows = new_topic(partitions=2), scores()
    producer = Producer({"bootstrap.servers": kafka.address})
    for number, row in enumerate(rows):
        stamp = int((NOON + timedelta(seconds=number)).timestamp() * 1000)
        producer.produce(topic, json.dumps(row).encode(), partition=number % 2, timestamp=stamp)
    assert producer.flush(60) == 0

    def slice_of(starting: Any, until: Any) -> Kafka:
        value = sl.json(COLUMNS)
        return sl.kafka(
            topic, servers=kafka.address, value=value, starting=starting, until=until, records_per_batch=120
        )

    # The records from the twentieth to the two hundredth, told twice.
    source = slice_of({topic: {"0": 10, "1": 10}}, {topic: {"0": 100, "1": 100}})
    for home, options in ((tmp_path / "whole", {}), (tmp_path / "parts", {"by_arrival": True})):
        run(by_team(sl.read(source), home), spark, home, **options)
        assert held_by_team(home) == expected(rows[20:200])
        with History(home / "job") as history:
            assert {point.lag_records for point in history.points()[-1:]} == {0}
            assert None not in {point.lag_records for point in history.points()}
    times = (NOON + timedelta(seconds=20), NOON + timedelta(seconds=200))
    assert slice_of(*times).extent(spark) == source.extent(spark) == {topic: {"0": (10, 100), "1": (10, 100)}}
    assert slice_of("earliest", "latest").extent(spark) == {topic: {"0": (0, 150), "1": (0, 150)}}
    nothing = slice_of(times[1], times[1])
    assert nothing.table(nothing.extent(spark), spark) is None
    with pytest.raises(InvalidStep, match="does not exist yet"):
        slice_of("earliest", {topic: {"0": 150, "1": 151}}).extent(spark)
    with pytest.raises(InvalidStep, match="there is no offset for"):
        slice_of("earliest", {topic: {"0": 150}}).extent(spark)
    with pytest.raises(SetupError, match="no topic"):
        sl.kafka("nowhere", servers=kafka.address, value=sl.json(COLUMNS), until="latest").extent(spark)
