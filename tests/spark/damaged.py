"""A small job and what it leaves, damaged in every way: a checkpoint made once, and copies of it at the same place."""

import json
import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

import strandline as sl
from strandline.checkpoint.file_copies import COPIES
from strandline.checkpoint.hadoop_checksums import beside
from strandline.spark.delivery.deliver import Delivered
from strandline.spark.job import Job

FILES: Final = 5
PATIENCE: Final = 120
TEAMS: Final = ("red", "blue", "green", "grey")


@dataclass(frozen=True)
class Made:
    """A job's folder, its input and its table, as they were when it ended: to be put back as often as one likes."""

    root: Path
    tables: dict[int, Path] = field(default_factory=dict)
    """The table as it was after each batch."""

    @property
    def job(self) -> Path:
        return self.root / "job"

    @property
    def kept(self) -> Path:
        return self.root / "kept"

    @property
    def table(self) -> Path:
        return self.root / "totals.db"

    @property
    def last(self) -> int:
        return max(int(each.name) for each in (self.kept / "spark" / "offsets").glob("[0-9]*"))

    def pipeline(self) -> sl.Pipeline:
        return (
            sl.read(sl.files(self.root / "in", sl.json("team string, score long, at timestamp"), files_per_batch=1))
            .event_time("at", sl.bounded(seconds=5))
            .key_by("team")
            .window(sl.tumbling(minutes=1))
            .trigger(sl.repeatedly(sl.after_count(1)))
            .accumulate(sl.accumulating)
            .allow_lateness(hours=1)
            .aggregate(total=sl.sum("score"))
            .write(sl.sqlite(self.table, table="totals"))
        )

    def feed(self, number: int) -> None:
        events = [{"team": team, "score": number * 10 + at, "at": f"2024-05-01T12:{at % 2:02}:0{number}Z"}
                  for at, team in enumerate(TEAMS)]  # fmt: skip
        path = self.root / "in" / f"{number}.json"
        path.write_text("".join(json.dumps(each) + "\n" for each in events))
        # Spark takes the oldest first, and these would be made in the same millisecond.
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))

    def run(self, spark: SparkSession) -> Job:
        def copied(batch: Delivered) -> None:
            self.tables[batch.batch] = self.root / f"{batch.batch}.db"
            _copy_table(self.table, self.tables[batch.batch])

        job: Job = self.pipeline().run(spark, checkpoint=self.job, available_now=True, listener=copied, key_groups=4)
        try:
            assert job.await_end(PATIENCE)
        finally:
            job.stop()
        return job

    def totals(self) -> dict[tuple[str, int], int]:
        """The latest answer for each team and minute."""
        with closing(sqlite3.connect(self.table)) as connection:
            rows = connection.execute("SELECT team, window_start, total FROM totals_now").fetchall()
        return {(team, int(start[14:16])): total for team, start, total in rows}

    def panes(self) -> Counter[tuple[str, int, int]]:
        """How often the table holds each pane: by team, minute and number."""
        with closing(sqlite3.connect(self.table)) as connection:
            rows = connection.execute("SELECT team, window_start, pane_index FROM totals").fetchall()
        return Counter((team, int(start[14:16]), index) for team, start, index in rows)

    def put_table_back(self, batch: int) -> None:
        """The table as it was after a batch."""
        for old in self.root.glob(f"{self.table.name}*"):
            old.unlink()
        _copy_table(self.tables[batch], self.table)

    def put_back(self) -> Path:
        """The folder as it was. Files are linked: whoever damages one makes it its own first."""
        for old in (self.job, self.job.with_name("job.damaged")):
            shutil.rmtree(old, ignore_errors=True)
        shutil.copytree(self.kept, self.job, copy_function=os.link)
        own(self.job / COPIES)  # a job adds to it in place
        return self.job


def _copy_table(was: Path, to: Path) -> None:
    """All of it, also what is still in SQLite's log."""
    to.unlink(missing_ok=True)
    with closing(sqlite3.connect(was)) as one, closing(sqlite3.connect(to)) as other:
        one.backup(other)


def totals_of(files: range) -> dict[tuple[str, int], int]:
    """What the table must say once these files are in it, and nothing twice."""
    return {(team, at % 2): sum(number * 10 + at for number in files) for at, team in enumerate(TEAMS)}


def panes_of(files: range) -> Counter[tuple[str, int, int]]:
    """A pane of each team for each file, and none of them twice."""
    return Counter((team, at % 2, index) for at, team in enumerate(TEAMS) for index in range(len(files)))


def make(spark: SparkSession, root: Path) -> Made:
    """Runs the job over a few files, one a batch."""
    made = Made(root)
    (root / "in").mkdir()
    for number in range(FILES):
        made.feed(number)
    made.run(spark)
    shutil.copytree(made.job, made.kept)
    return made


def at_rest(made: Made) -> None:
    """Every batch is committed."""


def delivered(made: Made) -> None:
    """Killed once the sinks had the last batch, before Spark knew."""
    _forget(made.job / "spark" / "commits" / str(made.last))


def unseen(made: Made) -> None:
    """Killed when the last batch was planned, and nobody had seen it."""
    delivered(made)
    copies = made.job / COPIES
    lines = [line for line in copies.read_bytes().splitlines(keepends=True) if not _of_batch(line, made.last)]
    own(copies).write_bytes(b"".join(lines))


def _of_batch(line: bytes, batch: int) -> bool:
    return json.loads(line)["path"] in (f"spark/offsets/{batch}", f"spark/sources/0/{batch}")


def _forget(path: Path) -> None:
    path.unlink()
    beside(path).unlink(missing_ok=True)


def own(path: Path) -> Path:
    """A file that is linked from nowhere else."""
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)
    return path


def empty(path: Path) -> None:
    own(path).write_bytes(b"")


def half(path: Path) -> None:
    data = own(path).read_bytes()
    path.write_bytes(data[: len(data) // 2])


def flipped(path: Path) -> None:
    data = bytearray(own(path).read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def missing(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def torn_unsummed(path: Path) -> None:
    """As a power cut leaves it: half of it, and nothing of its checksums."""
    half(path)
    beside(path).unlink(missing_ok=True)


HOW: Final[tuple[Callable[[Path], None], ...]] = (empty, half, missing, flipped, torn_unsummed)
STANDINGS: Final[tuple[Callable[[Made], None], ...]] = (at_rest, delivered, unseen)


def places(made: Made, standing: Callable[[Made], None]) -> Iterator[tuple[str, Path]]:
    """Every kind of file that a start needs, and what it is called here."""
    spark, last = made.job / "spark", made.last
    state = spark / "state" / "0"
    version = last + 1 if standing is at_rest else last
    snapshot = min((state / "0").glob("*.zip"))
    yield "range", spark / "offsets" / str(last)
    yield "range before", spark / "offsets" / str(last - 1)
    yield "old range", spark / "offsets" / "1"
    yield "commit", max((spark / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    yield "query id", spark / "metadata"
    yield "list", spark / "sources" / "0" / str(last)
    yield "earlier list", spark / "sources" / "0" / "1"
    yield "state", state / "0" / f"{version}.changelog"
    yield "earlier state", state / "0" / f"{version - 1}.changelog"
    yield "snapshot", snapshot
    yield "table of the snapshot", min((state / "0" / "SSTs").glob("[0-9]*"))
    yield "description", max((state / "_metadata" / "v2").glob("[0-9]*"))
    yield "schema", max((state / "_stateSchema" / "default").glob("[0-9]*"))
    yield "identity", made.job / "strandline.json"
    yield "notes", made.job / "notes.json"
    yield "copies", made.job / COPIES
