"""Contract of sources: a range always gives the same records, offsets survive, and bounded runs end.

One job reads all sources, in four acts: a bounded run over the existing records; a second run over new ones; a replay
of the same batch, as after a crash; and an unbounded run while records arrive.
"""

import gzip
import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Protocol

import polars as pl
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyarrow import orc
from pyspark.sql import SparkSession

import strandline as sl
from strandline.checkpoint.file_copies import COPIES
from strandline.checkpoint.job_folder import Checkpoint
from strandline.connectors.generated.draw_events import POISON, events
from strandline.kernel.blocks.block import OFFSET, PARTITION
from strandline.kernel.output import Output
from strandline.plan.endpoints import Delivery, Source
from strandline.plan.stages import Deliver
from strandline.ports.codecs import DETAIL, REASON
from strandline.ports.ledger import LedgerEntry, Recorded, Written
from strandline.ports.sources import CommittingSource, SparkSource
from strandline.services.service import Service
from strandline.spark.job import Job

pytestmark = pytest.mark.spark

EACH: Final = 40
"""Records of a round; the last of them is broken, if the source can have broken records."""
COLUMNS: Final = "n long, word string"
PATIENCE: Final = 120


@dataclass
class Played:
    """The elements and dead letters of a batch."""

    batch: int
    rows: list[dict[str, Any]]
    dead: list[dict[str, Any]]


HEARD: dict[str, list[Played]] = {}


@dataclass(frozen=True, slots=True)
class Memory:
    """A sink that keeps everything it gets, replays included."""

    of: str

    @property
    def name(self) -> str:
        return f"memory({self.of})"

    @property
    def offers(self) -> frozenset[Delivery]:
        return frozenset(Delivery)

    @property
    def takes_retractions(self) -> bool:
        return True

    def open(self, output: Deliver) -> "Memory":
        return self

    def claim(self, lineage: str) -> int:
        return 1

    def latest(self, lineage: str) -> Recorded | None:
        return None

    def commit(self, output: Output, entry: LedgerEntry) -> Written:
        if output.panes is not None or output.dead is not None:
            HEARD.setdefault(self.of, []).append(Played(entry.batch, _rows(output.panes), _rows(output.dead)))
        return Written()

    mark = write = commit

    def close(self) -> None:
        pass


def _rows(frame: pl.DataFrame | None) -> list[dict[str, Any]]:
    return [] if frame is None else frame.sort(PARTITION, OFFSET).rows(named=True)


class Supply(Protocol):
    """A source, and a way to add records to it."""

    def source(self, spark: SparkSession) -> SparkSource: ...

    def feed(self, round_: int) -> None: ...

    def missing(self, rounds: int, heard: list[Played]) -> str:
        """What is wrong after this many rounds; empty if all is right."""
        ...


def numbers(round_: int) -> range:
    return range(round_ * EACH, (round_ + 1) * EACH)


@dataclass
class Folder:
    """Files in a folder, one per round."""

    folder: Path
    format: str
    broken: int = 1

    def source(self, spark: SparkSession) -> SparkSource:
        self.folder.mkdir(exist_ok=True)
        return {
            "json": lambda: sl.files(self.folder, sl.json(COLUMNS), files_per_batch=1),
            "csv": lambda: sl.files(self.folder, sl.csv(COLUMNS), header=True, metadata={"file": "path"}),
            "parquet": lambda: sl.files(self.folder, COLUMNS),
            "orc": lambda: sl.files(self.folder, COLUMNS, format="orc", metadata={"file": "path"}),
        }[self.format]()

    def feed(self, round_: int) -> None:
        self.folder.mkdir(exist_ok=True)
        whole = [*numbers(round_)][: EACH - self.broken]
        draft = self.folder / f"_{round_}"
        match self.format:
            case "json":
                lines = [json.dumps({"n": n, "word": f"w{n}"}) for n in whole] + ["{"] * self.broken
                draft.write_bytes(gzip.compress("\n".join(lines).encode()))
                name = f"{round_}.json.gz"
            case "csv":
                lines = ["n,word", *(f"{n},w{n}" for n in whole), *(["many,w"] * self.broken)]
                draft.write_text("\r\n".join(lines))
                name = f"{round_} of them.csv"
            case "parquet":
                pl.DataFrame({"n": whole, "word": [f"w{n}" for n in whole]}).write_parquet(draft)
                name = f"{round_}.parquet"
            case _:
                orc.write_table(pa.table({"n": whole, "word": [f"w{n}" for n in whole]}), draft)
                name = f"{round_}.orc"
        draft.rename(self.folder / name)

    def missing(self, rounds: int, heard: list[Played]) -> str:
        return compare(rounds, self.broken, heard)


def compare(rounds: int, broken: int, heard: list[Played]) -> str:
    """Check by number: every record once, every broken one a dead letter."""
    found = Counter(row["n"] for played in heard for row in played.rows)
    expected = Counter(n for round_ in range(rounds) for n in [*numbers(round_)][: EACH - broken])
    dead = sum(len(played.dead) for played in heard)
    lost, twice = expected - found, found - expected
    return "" if found == expected and dead == broken * rounds else f"lost {lost}, twice {twice}, {dead} dead"


@dataclass
class Framed(Folder):
    """A DataFrame of the user, with columns for partition and offset."""

    broken: int = 0

    def source(self, spark: SparkSession) -> SparkSource:
        self.folder.mkdir(exist_ok=True)
        rows = spark.readStream.schema(COLUMNS).parquet(str(self.folder))
        placed = rows.selectExpr("*", "cast(n % 2 as string) as half", "n as place")
        return sl.frame(placed, partition="half", offset="place")


@dataclass
class Generator:
    """A source that is fed by time."""

    start: datetime = field(default_factory=lambda: datetime.now(UTC) - timedelta(seconds=2))

    def source(self, spark: SparkSession | None) -> Any:
        return sl.generator(start=self.start, rate=40, partitions=2, poison=0.1, poisons=["cut", "utf8"])

    def feed(self, round_: int) -> None:
        time.sleep(0.1)

    def missing(self, rounds: int, heard: list[Played]) -> str:
        """Check by position: no position is skipped, and each record is the one of the seed."""
        ask = self.source(None)
        for number, name in enumerate(ask.partitions):
            own = [row for each in heard for row in (*each.rows, *each.dead) if row[PARTITION] == name]
            if sorted(row[OFFSET] for row in own) != [*range(len(own))] or not own:
                return f"places of partition {name}: {sorted(row[OFFSET] for row in own)}"
            meant = events(ask, number, 0, len(own), int(self.start.timestamp() * 1000))
            kinds = {offset: kind for offset, kind in enumerate(meant[POISON]) if kind is not None}
            if kinds.keys() != {row[OFFSET] for row in own if REASON in row}:
                return f"dead letters of partition {name}"
            if any(row["id"] != meant["id"][row[OFFSET]] for row in own if REASON not in row):
                return f"events of partition {name}"
        return ""


@dataclass
class Topic:
    """A topic of a real broker."""

    servers: str
    topic: str

    def source(self, spark: SparkSession) -> SparkSource:
        return sl.kafka(self.topic, servers=self.servers, value=sl.json(COLUMNS), records_per_batch=25)

    def feed(self, round_: int) -> None:
        producer = Producer({"bootstrap.servers": self.servers})
        for place, n in enumerate(numbers(round_)):
            value = b"{" if place == EACH - 1 else json.dumps({"n": n, "word": f"w{n}"}).encode()
            producer.produce(self.topic, value, partition=n % 2)
        assert producer.flush(30) == 0

    def missing(self, rounds: int, heard: list[Played]) -> str:
        return compare(rounds, 1, heard)


@dataclass
class Acts:
    """The batches of each act, and the batch that was replayed."""

    supplies: Mapping[str, Supply]
    home: Checkpoint
    sources: dict[str, SparkSource] = field(default_factory=dict)
    first: dict[str, list[Played]] = field(default_factory=dict)
    second: dict[str, list[Played]] = field(default_factory=dict)
    again: dict[str, list[Played]] = field(default_factory=dict)
    live: dict[str, list[Played]] = field(default_factory=dict)
    read: list[int] = field(default_factory=list)
    repeated: int = -1

    def play(self, spark: SparkSession) -> "Acts":
        self._feed(0)
        self.first = self._read_what_is_there(spark)
        self._feed(1)
        before = self.home.newest() or 0
        self.second = self._read_what_is_there(spark)
        self.repeated = before + 1
        self._forget_from(self.repeated)
        self.again = self._read_what_is_there(spark)
        self.live = self._go_on(spark)
        return self

    def _feed(self, round_: int) -> None:
        for supply in self.supplies.values():
            supply.feed(round_)

    def _run(self, spark: SparkSession, **options: Any) -> Job:
        self.sources = {name: supply.source(spark) for name, supply in self.supplies.items()}
        written = [sl.read(source).write(Memory(name)) for name, source in self.sources.items()]
        job = sl.together(*written).run(spark, checkpoint=self.home.folder, **options)
        assert isinstance(job, Job)
        return job

    def _read_what_is_there(self, spark: SparkSession) -> dict[str, list[Played]]:
        HEARD.clear()
        job = self._run(spark, available_now=True)
        assert job.await_end(PATIENCE)
        self.read.append(job.counts.read)
        return dict(HEARD)

    def _forget_from(self, batch: int) -> None:
        """Simulate a crash in this batch: Spark has planned it, and does not know that it was delivered."""
        (self.home.folder / COPIES).unlink()
        for folder, kept in (("offsets", batch), ("commits", batch - 1)):
            for entry in (self.home.spark / folder).glob("[0-9]*"):
                if int(entry.name) > kept:
                    entry.unlink()
                    with suppress(FileNotFoundError):
                        (entry.parent / f".{entry.name}.crc").unlink()

    def _go_on(self, spark: SparkSession) -> dict[str, list[Played]]:
        HEARD.clear()
        job = self._run(spark)
        try:
            self._feed(2)
            until = time.monotonic() + PATIENCE
            while any(self.problem(name, 3, HEARD) for name in self.supplies) and time.monotonic() < until:
                time.sleep(0.1)
        finally:
            job.stop()
        return dict(HEARD)

    def heard(self, name: str, *acts: Mapping[str, list[Played]]) -> list[Played]:
        return [played for act in acts for played in act.get(name, [])]

    def problem(self, name: str, rounds: int, last: Mapping[str, list[Played]]) -> str:
        """The batches up to this act; the replayed batch counts once."""
        after = [played for played in self.heard(name, self.again) if played.batch > self.repeated]
        earlier = [each for each in self.heard(name, self.first, self.second) if each.batch <= self.repeated]
        return self.supplies[name].missing(rounds, [*earlier, *after, *last.get(name, [])])


HERE: Final = ("json", "csv", "parquet", "orc", "frame", "generator")


@pytest.fixture(scope="module")
def here(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Acts]:
    folder = tmp_path_factory.mktemp("sources")
    supplies: dict[str, Supply] = {
        "json": Folder(folder / "json", "json"),
        "csv": Folder(folder / "csv", "csv"),
        "parquet": Folder(folder / "parquet", "parquet", broken=0),
        "orc": Folder(folder / "orc", "orc", broken=0),
        "frame": Framed(folder / "frame", "parquet"),
        "generator": Generator(),
    }
    yield Acts(supplies, Checkpoint(folder / "job")).play(spark)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def far(spark: SparkSession, kafka: Service, new_topic: Callable[..., str], tmp_path_factory: Any) -> Acts:
    supplies: dict[str, Supply] = {"kafka": Topic(kafka.address, new_topic(partitions=3))}
    return Acts(supplies, Checkpoint(tmp_path_factory.mktemp("topics") / "job")).play(spark)


@pytest.fixture(params=[*HERE, pytest.param("kafka", marks=pytest.mark.services)])
def played(request: pytest.FixtureRequest) -> tuple[str, Acts]:
    acts: Acts = request.getfixturevalue("far" if request.param == "kafka" else "here")
    return request.param, acts


def test_a_bounded_run_ends_by_itself_with_all_available_records(played: tuple[str, Acts]) -> None:
    name, acts = played
    assert acts.supplies[name].missing(1, acts.heard(name, acts.first)) == ""


def test_the_next_run_reads_new_records_only(played: tuple[str, Acts]) -> None:
    name, acts = played
    assert acts.supplies[name].missing(2, acts.heard(name, acts.first, acts.second)) == ""


def _plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if not name.startswith("@")} for row in rows]


def test_the_same_range_gives_the_same_records_in_the_same_places(played: tuple[str, Acts]) -> None:
    name, acts = played
    once = [each for each in acts.second[name] if each.batch == acts.repeated]
    again = [each for each in acts.again[name] if each.batch == acts.repeated]
    assert once
    if name == "orc":  # its rows have no number of their own: their place is the batch's clock and the task
        once, again = ([replace(each, rows=_plain(each.rows)) for each in result] for result in (once, again))
    assert once == again


def test_an_unbounded_run_reads_new_records(played: tuple[str, Acts]) -> None:
    name, acts = played
    assert acts.live[name]
    assert acts.problem(name, 3, acts.live) == ""


def test_every_record_is_counted(played: tuple[str, Acts]) -> None:
    _, acts = played
    acts_of = (acts.first, acts.second)
    for act, read in zip(acts_of, acts.read, strict=False):
        assert read == sum(len(each.rows) + len(each.dead) for heard in act.values() for each in heard)


def test_dead_letters_have_a_reason_and_a_position(played: tuple[str, Acts]) -> None:
    name, acts = played
    for letter in [letter for each in acts.heard(name, acts.first) for letter in each.dead]:
        assert letter[REASON] == "undecodable"
        assert letter[DETAIL]
        assert letter[PARTITION]
        assert letter[OFFSET] >= 0


def test_a_source_reports_its_columns_and_partitions(played: tuple[str, Acts]) -> None:
    """Its columns, and its partitions: in advance, or from the offsets."""
    name, acts = played
    source = acts.sources[name]
    assert isinstance(source, Source)
    row = acts.first[name][0].rows[0]
    assert [column for column in row if not column.startswith("@")] == [*source.types]
    assert row[PARTITION] is not None
    if isinstance(source, CommittingSource):
        offsets = acts.home.latest_offsets([*acts.sources].index(name))
        assert len(source.partitions_at(offsets)) == 3
    else:
        assert source.partitions in {("",), ("0", "1"), ()}
