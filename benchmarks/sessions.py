"""Start Spark for a run: the same tuned settings for all contestants, plus the state store each needs."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, assert_never

import strandline as sl
from benchmarks.feeds import EVENTS, Feed, Folder, Lines, Topic
from benchmarks.suite import CORES
from benchmarks.workloads import Contestant
from strandline.spark.launch.jars import jars_folder, paths, pinned
from strandline.spark.launch.session import (
    JAVA,
    OF_RECORDS,
    ROCKSDB,
    SERIAL,
    WITHOUT_ROWS,
    of_records,
    settings,
    start_session,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JARS: Final = Path(__file__).with_name("jars.toml")
"""Settings that only peers need."""
MEMORY: Final = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
STATE: Final = "spark.sql.streaming.stateStore"


def common() -> dict[str, str]:
    """Return the common settings, in addition to those of an embedded job."""
    return settings(CORES) | {
        "spark.driver.memory": "4g",
        # Otherwise wide plans are compiled again in each batch.
        "spark.sql.codegen.cache.maxEntries": "2000",
        # Progress of all batches is read at the end.
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
        f"{STATE}.maintenanceInterval": "60s",
        f"{STATE}.rocksdb.maxMemoryUsageMB": "1000",
    }


def settings_of(contestant: Contestant) -> dict[str, str]:
    """Return the settings of one contestant; only the state store differs."""
    provider = MEMORY if contestant is Contestant.NATIVE_MEMORY else ROCKSDB
    return common() | {f"{STATE}.providerClass": provider}


def while_checking() -> dict[str, str]:
    """Return settings of a check run, which may compact its state and report its size."""
    return {
        f"{STATE}.rocksdb.changelogCheckpointing.enabled": "false",
        f"{STATE}.rocksdb.compactOnCommit": "true",
    }


@dataclass(frozen=True, slots=True)
class Room:
    """Cores and shuffle partitions of a run; partitions default to cores."""

    cores: int = CORES
    partitions: int | None = None

    def settings(self) -> dict[str, str]:
        """Return the Spark settings."""
        partitions = str(self.partitions or self.cores)
        return {"spark.master": f"local[{self.cores},4]", "spark.sql.shuffle.partitions": partitions}

    def enter(self) -> None:
        """Pin this process and its children to the cores; compilers and workers ignore Spark's limit."""
        mine = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, mine[: self.cores])


def of_topic(contestant: Contestant, feed: Topic) -> dict[str, str]:
    """Return the Arrow batch limit: bytes for ours, where a row holds many records; rows for others."""
    if contestant in (Contestant.OURS, Contestant.AT_ONCE):
        return dict(OF_RECORDS)
    return of_records(sl.kafka(feed.name, servers=feed.servers, value=sl.json(EVENTS)).longest())


def given(contestant: Contestant, feed: Feed | None) -> dict[str, str]:
    """Return settings that depend on the source; for ours those a job starts Spark with."""
    match feed:
        case Topic():
            return of_topic(contestant, feed)
        case Lines():
            # Only our contestant reads these with Spark.
            return dict(WITHOUT_ROWS)
        case Folder() if contestant in (Contestant.OURS, Contestant.AT_ONCE):
            # Peers are slower without the second compiler: decision 0020.
            return dict(WITHOUT_ROWS)
        case Folder():
            # Peers gain from this part: decision 0035.
            return {JAVA: SERIAL}
        case None:
            return {}
    assert_never(feed)


def start(
    contestant: Contestant,
    log: Path,
    feed: Feed | None = None,
    room: Room | None = None,
    also: Mapping[str, str] | None = None,
) -> "SparkSession":
    """Start a new Spark in this process, with Kafka's jars if needed and further settings.

    Only our contestant gets Strandline's changes to Spark beyond settings.
    """
    wanted = settings_of(contestant) | (Room() if room is None else room).settings() | given(contestant, feed)
    if isinstance(feed, Topic):
        files = [*paths(), *(jars_folder() / jar.file for jar in pinned(JARS))]
        wanted["spark.jars"] = ",".join(map(str, files))
    plain = contestant not in (Contestant.OURS, Contestant.AT_ONCE)
    return start_session("strandline-bench", log=log, overrides=wanted | dict(also or {}), plain=plain)
