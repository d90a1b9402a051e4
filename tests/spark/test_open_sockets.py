"""What batches leave open: nothing. A job that opens more with each one is stopped by its machine some day."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import strandline as sl

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="this system does not show what a process has open"),
]
MANY = 12


def sockets(process: int) -> int:
    """So many does it have open now."""
    found = 0
    for each in Path(f"/proc/{process}/fd").iterdir():
        try:
            found += str(each.readlink()).startswith("socket:")
        except OSError:
            continue  # closed meanwhile
    return found


def test_a_batch_closes_the_sockets_that_it_opens(spark: SparkSession, tmp_path: Path) -> None:
    context: Any = spark.sparkContext
    java = int(context._jvm.java.lang.ProcessHandle.current().pid())
    folder = tmp_path / "in"
    folder.mkdir()
    totals = (
        sl.read(sl.files(folder, sl.json("n long, at timestamp"), files_per_batch=1))
        .event_time("at", sl.bounded(seconds=1))
        .key_by("n")
        .window(sl.tumbling(seconds=10))
        .aggregate(seen=sl.count())
        .write(sl.sqlite(tmp_path / "totals.db", table="totals"))
    )

    def batches(first: int, last: int) -> int:
        """Gives it so many files, each a batch of its own, and tells how many sockets are open when they are read."""
        for number in range(first, last):
            (folder / f"{number:03}.json").write_text(json.dumps({"n": number, "at": f"2024-05-01T12:00:{number:02}Z"}))
        job = totals.run(spark, checkpoint=tmp_path / "job", available_now=True)
        assert job.await_end(120)
        assert job.counts.read == last - first
        return sockets(java)

    before = batches(0, 2)
    after = batches(2, 2 + MANY)
    assert after - before < MANY // 2
