"""Create sinks in separate stores and read their tables."""

import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import polars as pl

import strandline as sl
from proof.events import EVENT, PARTS
from strandline.plan.endpoints import Delivery
from strandline.plan.stages import Deliver
from strandline.ports.sinks import SparkSink

Row = tuple[str, int, int]
"""Part, batch, event."""

_SUFFIX: Final = {"panes": "", "late": "_late", "dead": "_dead"}
_COLUMN: Final = {"panes": EVENT, "late": EVENT, "dead": "source_offset"}


class Store(Protocol):
    """A store for tables, and its reader."""

    @property
    def name(self) -> str: ...

    @property
    def roots(self) -> tuple[Path, ...]:
        """Folders whose files this process must sync itself."""
        ...

    @property
    def whole(self) -> bool:
        """Whether rows, late elements and dead letters of a batch are one transaction."""
        ...

    def sink(self, table: str) -> SparkSink: ...

    def rows(self, table: str) -> list[Row]:
        """Read the committed rows."""
        ...


@dataclass(frozen=True, slots=True)
class Asked:
    """A table of a store and its delivery."""

    store: Store
    delivery: Delivery = Delivery.EXACTLY_ONCE
    table: str = "answers"

    @property
    def sink(self) -> SparkSink:
        return self.store.sink(self.table)

    def deliver(self, number: int) -> Deliver:
        return Deliver(number, self.sink, self.delivery, None)

    def rows(self) -> list[Row]:
        return self.store.rows(self.table)


@dataclass(frozen=True)
class SqliteStore:
    path: Path
    name: str = "sqlite"
    roots: tuple[Path, ...] = ()
    whole: bool = True

    @property
    def file(self) -> Path:
        return self.path / "answers.db"

    def sink(self, table: str) -> SparkSink:
        return sl.sqlite(self.file, table=table)

    def rows(self, table: str) -> list[Row]:
        if not self.file.exists():
            return []
        with closing(sqlite3.connect(self.file)) as connection:
            connection.execute("BEGIN")
            there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            return [
                (part, batch, event)
                for part in PARTS
                if table + _SUFFIX[part] in there
                for batch, event in connection.execute(f'SELECT batch, {_COLUMN[part]} FROM "{table}{_SUFFIX[part]}"')
            ]


@dataclass(frozen=True)
class DuckDbStore:
    path: Path
    name: str = "duckdb"
    roots: tuple[Path, ...] = ()
    whole: bool = True

    @property
    def file(self) -> Path:
        return self.path / "answers.duckdb"

    def sink(self, table: str) -> SparkSink:
        return sl.duckdb(self.file, table=table)

    def rows(self, table: str) -> list[Row]:
        import duckdb

        if not self.file.exists():
            return []
        found: list[Row] = []
        with duckdb.connect(str(self.file)) as connection:
            connection.begin()
            there = {name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
            for part in PARTS:
                if table + _SUFFIX[part] in there:
                    ask = f'SELECT batch, {_COLUMN[part]} FROM "{table}{_SUFFIX[part]}"'
                    found += [(part, batch, event) for batch, event in connection.execute(ask).fetchall()]
        return found


@dataclass(frozen=True)
class PostgresStore:
    """A separate schema in a real server."""

    dsn: str
    schema: str
    name: str = "postgres"
    roots: tuple[Path, ...] = ()
    whole: bool = True

    def sink(self, table: str) -> SparkSink:
        return sl.postgres(table, dsn=self.dsn, schema=self.schema)

    def make(self) -> "PostgresStore":
        import psycopg

        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{self.schema}"')
        return self

    def rows(self, table: str) -> list[Row]:
        import psycopg

        found: list[Row] = []
        with psycopg.connect(self.dsn) as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            for part in PARTS:
                place = f'"{self.schema}"."{table}{_SUFFIX[part]}"'
                there = connection.execute("SELECT to_regclass(%s) IS NOT NULL", [place]).fetchone()
                if there is not None and there[0]:
                    told: Any = connection.execute(f"SELECT batch, {_COLUMN[part]} FROM {place}")
                    found += [(part, batch, event) for batch, event in told.fetchall()]
        return found


@dataclass(frozen=True)
class FolderStore:
    path: Path
    name: str = "folder"
    whole: bool = True

    @property
    def roots(self) -> tuple[Path, ...]:
        return (self.path,)

    def sink(self, table: str) -> SparkSink:
        return sl.folder(self.path / table)

    def rows(self, table: str) -> list[Row]:
        if not (self.path / table / "_log").is_dir():
            return []
        found: list[Row] = []
        for part in PARTS:
            rows = sl.read_manifested(self.path / table, part)
            if rows.width:
                found += [(part, *each) for each in rows.select("batch", _COLUMN[part]).rows()]
        return found


@dataclass(frozen=True)
class DeltaStore:
    path: Path
    name: str = "delta"
    whole: bool = False

    @property
    def roots(self) -> tuple[Path, ...]:
        return (self.path,)

    def sink(self, table: str) -> SparkSink:
        return sl.delta(self.path / table)

    def rows(self, table: str) -> list[Row]:
        from deltalake import DeltaTable

        found: list[Row] = []
        for part in PARTS:
            place = str(self.path / f"{table}{_SUFFIX[part]}")
            if not DeltaTable.is_deltatable(place):
                continue
            rows = pl.DataFrame(DeltaTable(place).scan())
            if _COLUMN[part] in rows.columns:
                found += [(part, *each) for each in rows.select("batch", _COLUMN[part]).rows()]
        return found


@dataclass(frozen=True)
class KafkaStore:
    """Separate topics on a real broker."""

    servers: str
    prefix: str
    name: str = "kafka"
    roots: tuple[Path, ...] = ()
    whole: bool = True

    def topic(self, table: str) -> str:
        return f"{self.prefix}-{table}"

    def sink(self, table: str) -> SparkSink:
        return sl.kafka_topic(self.topic(table), servers=self.servers)

    def make(self, *tables: str) -> "KafkaStore":
        from strandline.services.topics import Topic, create_topics

        create_topics(self.servers, *(Topic(self.topic(table), 1) for table in tables))
        return self

    def rows(self, table: str) -> list[Row]:
        """Read per topic all committed records before the first open transaction."""
        topics = {self.topic(table) + suffix.replace("_", "."): part for part, suffix in _SUFFIX.items()}
        return [_told(topics[record.topic()], record) for record in committed(self.servers, topics)]


def _told(part: str, record: Any) -> Row:
    batch = int(dict(record.headers())["strandline-batch"].split(b"/")[1])
    return part, batch, json.loads(record.value())[_COLUMN[part]]


def committed(servers: str, topics: Mapping[str, str]) -> list[Any]:
    """Return the currently committed records of topics, without waiting for open transactions."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer({
        "bootstrap.servers": servers, "group.id": "proof", "enable.auto.commit": False, "log_level": 0,
        "isolation.level": "read_committed", "enable.partition.eof": True, "fetch.wait.max.ms": 20,
    })  # fmt: skip
    try:
        known = consumer.list_topics(timeout=30).topics
        places = [
            TopicPartition(each, number, 0) for each in topics if each in known for number in known[each].partitions
        ]
        consumer.assign(places)
        found, open_ = [], {(place.topic, place.partition) for place in places}
        while open_:
            record = consumer.poll(30)
            if record is None:
                raise AssertionError(f"{sorted(open_)} cannot be read to the end")
            fault = record.error()
            if fault is None:
                found.append(record)
            elif fault.code() == KafkaError._PARTITION_EOF:
                open_.discard((record.topic(), record.partition()))
        return found
    finally:
        consumer.close()


def store_of(spec: Mapping[str, str]) -> Store:
    """Return the store that a description names, also in another process."""
    match spec["kind"]:
        case "postgres":
            return PostgresStore(spec["dsn"], spec["schema"])
        case "kafka":
            return KafkaStore(spec["servers"], spec["prefix"])
        case kind:
            return EMBEDDED[kind](Path(spec["path"]))


EMBEDDED: Final[Mapping[str, Callable[[Path], Store]]] = {
    "sqlite": SqliteStore,
    "duckdb": DuckDbStore,
    "folder": FolderStore,
    "delta": DeltaStore,
}
