"""Provide the stores for delivery benchmarks, each a real service, and read their tables."""

import json
import secrets
import sqlite3
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, Self

import strandline as sl
from strandline.connectors.kafka.clients import admin_of, ends, partitions, reader, records_from
from strandline.connectors.kafka.security import Security
from strandline.ports.sinks import SparkSink
from strandline.services.catalogue import service
from strandline.services.service import Service
from strandline.services.topics import Topic, create_topics

NAMES: Final = ("sqlite", "postgres", "kafka", "valkey")
_COUNT: Final = "SELECT count(*), count(DISTINCT id), coalesce(sum(value), 0)::bigint FROM {}"


_KNOWN_WITHIN_SECONDS: Final = 30.0


class Found(NamedTuple):
    """Number of rows, distinct rows, and the sum of values in a table."""

    rows: int
    different: int
    total: int


class Store(Protocol):
    """A running store."""

    def new_table(self, name: str) -> str:
        """Return an unused table name."""
        ...

    def sink(self, table: str) -> SparkSink: ...

    def found(self, table: str) -> Found: ...


@dataclass(frozen=True, slots=True)
class SqliteFile:
    """A SQLite file."""

    path: Path

    def new_table(self, name: str) -> str:
        return f"t_{name}_{secrets.token_hex(4)}"

    def sink(self, table: str) -> SparkSink:
        return sl.sqlite(self.path, table=table)

    def found(self, table: str) -> Found:
        with closing(sqlite3.connect(self.path)) as connection:
            return Found(*connection.execute(_COUNT.format(table).replace("::bigint", "")).fetchone())


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A separate server."""

    dsn: str

    def new_table(self, name: str) -> str:
        return f"t_{name}_{secrets.token_hex(4)}"

    def sink(self, table: str) -> SparkSink:
        return sl.postgres(table, dsn=self.dsn)

    def found(self, table: str) -> Found:
        import psycopg  # noqa: PLC0415 - an extra

        with psycopg.connect(self.dsn) as connection:
            (row,) = connection.execute(_COUNT.format(table).encode()).fetchall()
        return Found(*row)


@dataclass(frozen=True, slots=True)
class KafkaBroker:
    """A separate broker; a table is a topic with two partitions."""

    servers: str

    def new_table(self, name: str) -> str:
        topic = f"t-{name}-{secrets.token_hex(4)}"
        create_topics(self.servers, Topic(topic, 2))
        give_up = time.monotonic() + _KNOWN_WITHIN_SECONDS
        # A broker lists a topic a moment after creating it.
        while len(partitions(admin_of(self.servers, Security()), topic)) < 2:
            if time.monotonic() > give_up:
                raise TimeoutError(f"the broker does not tell of {topic}")
            time.sleep(0.05)
        return topic

    def sink(self, table: str) -> SparkSink:
        return sl.kafka_topic(table, servers=self.servers)

    def found(self, table: str) -> Found:
        """Read the committed rows."""
        until = ends(admin_of(self.servers, Security()), [table])
        with reader(self.servers, Security()) as consumer:
            records = records_from(consumer, {table: dict.fromkeys(until[table], 0)}, until)
            told = [(row["id"], row["value"]) for row in (json.loads(record.value()) for record in records)]
        return Found(len(told), len({id_ for id_, _ in told}), sum(value for _, value in told))


@dataclass(frozen=True, slots=True)
class ValkeyServer:
    """A separate server; a table is a prefix, and each row a key."""

    url: str

    def new_table(self, name: str) -> str:
        return f"t-{name}-{secrets.token_hex(4)}"

    def sink(self, table: str) -> SparkSink:
        return sl.valkey(self.url, prefix=table, key=["id"])

    def found(self, table: str) -> Found:
        import valkey  # noqa: PLC0415 - an extra

        with valkey.Valkey.from_url(self.url) as client:
            keys = [*client.scan_iter(f"{table}:*", count=10_000)]
            parts = (keys[start : start + 10_000] for start in range(0, len(keys), 10_000))
            rows: list[dict[str, Any]] = [json.loads(line) for part in parts for line in client.mget(part)]
            for start in range(0, len(keys), 10_000):
                client.unlink(*keys[start : start + 10_000])
        return Found(len(rows), len({row["id"] for row in rows}), sum(row["value"] for row in rows))


def _remove(database: Path) -> None:
    for each in database.parent.glob(f"{database.name}*"):
        each.unlink()


class Stores:
    """The requested stores, started on first use and stopped at the end."""

    def __init__(self, home: Path) -> None:
        self._home, self._open = home, ExitStack()
        self._running: dict[str, Service] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def address(self, name: str) -> str:
        """Return the address of a service, starting it if needed."""
        if name not in self._running:
            mine = service(name, self._home, leashed=True)
            mine.start()
            self._open.callback(mine.stop)
            self._running[name] = mine
        return self._running[name].address

    def store(self, name: str) -> Store:
        match name:
            case "sqlite":
                self._home.mkdir(parents=True, exist_ok=True)
                path = self._home / f"rows-{secrets.token_hex(4)}.db"
                self._open.callback(_remove, path)
                return SqliteFile(path)
            case "postgres":
                return PostgresServer(self.address("postgres"))
            case "kafka":
                return KafkaBroker(self.address("kafka"))
            case "valkey":
                return ValkeyServer(self.address("valkey"))
        raise ValueError(f"there is no store {name!r}")
