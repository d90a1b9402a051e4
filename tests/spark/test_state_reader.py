"""What a job keeps, read beside it while it runs."""

from pathlib import Path

import polars as pl
import pytest
from pyspark.sql import SparkSession

import strandline as sl
from strandline.errors import StateError
from strandline.kernel.blocks import END, START
from strandline.spark.checkpoint import Checkpoint
from strandline.spark.job import Job
from strandline.spark.state_reader import JobState, read_state

COLUMNS = "team string, score long, at timestamp"
MINUTE = 60_000


def lines(*rows: tuple[str, int, str]) -> str:
    return "".join(f'{{"team": "{team}", "score": {score}, "at": "2024-05-01T{at}Z"}}\n' for team, score, at in rows)


def sums(state: JobState) -> dict[tuple[str, int], int]:
    """What open windows hold, by team and minute, from all key groups."""
    frames = [each.frames["windows"] for group in state.groups for each in group.slices() if each.kind == "slice"]
    rows = pl.concat(frames).select("team", START, END, "@total").rows()
    assert all(end - start == MINUTE for _, start, end, _ in rows)
    return {(team, start // MINUTE % 60): total for team, start, _, total in rows}


@pytest.mark.spark
def test_the_state_of_a_running_job_is_read_at_its_last_batch_and_at_an_earlier_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "1.json").write_text(lines(("red", 1, "12:00:01"), ("blue", 2, "12:00:02"), ("red", 4, "12:00:30")))
    totals = (
        sl.read(sl.files(folder, sl.json(COLUMNS)))
        .event_time("at", sl.bounded(seconds=10))
        .key_by("team")
        .window(sl.tumbling(minutes=1))
        .aggregate(total=sl.sum("score"))
        .write(sl.sqlite(tmp_path / "out.db", table="totals"))
    )
    home = Checkpoint(tmp_path / "job")

    def play() -> Job:
        job: Job = totals.run(spark, checkpoint=home.folder, available_now=True)
        assert job.await_end(120)
        return job

    play()
    first = read_state(spark, home)
    assert first.steps == (0,)
    assert [each.group for each in first.groups] == [*range(home.key_groups or 0)]
    assert sums(first) == {("red", 0): 5, ("blue", 0): 2}

    (folder / "2.json").write_text(lines(("red", 8, "12:00:40"), ("red", 16, "12:01:00")))
    job = totals.run(spark, checkpoint=home.folder)
    try:
        while home.committed()[-1] == first.batch:
            assert not job.await_end(0.1)
        later = read_state(spark, home)
        assert job.status.state in ("running", "starting")
        assert later.batch > first.batch
        assert sums(later) == {("red", 0): 13, ("blue", 0): 2, ("red", 1): 16}
        assert all(each.entry is not None and each.entry.rows == each.rows and each.entry.size == each.size
                   for group in later.groups for each in group.slices())  # fmt: skip
        assert {group.index.progress.watermark // MINUTE % 60 for group in later.groups} == {0}
    finally:
        job.stop()
    assert sums(read_state(spark, home, first.batch)) == sums(first)
    with pytest.raises(StateError, match="batch 99 is not kept"):
        read_state(spark, home, 99)
    assert not [*home.folder.glob(".held-*")]


def test_a_folder_without_a_batch_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="there is no batch to read"):
        read_state(None, Checkpoint(tmp_path))  # type: ignore[arg-type]
