"""Stores for the contract suite: a sink, and a reader of what it wrote. A new sink needs one class here.

Rows are dictionaries with the sink's public names; instants are texts, "1970-01-01 00:00:00.000" or "infinity".
"""

import json
import re
import sqlite3
from base64 import b64decode
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

import duckdb
import polars as pl
import psycopg
import valkey

import strandline as sl
from strandline.connectors.kafka.clients import admin_of, ends, reader, records_from
from strandline.connectors.kafka.security import Security
from strandline.letters.envelope_json import from_json
from strandline.plan.endpoints import Delivery
from strandline.ports.sinks import SparkSink
from strandline.services.topics import Topic, create_topics

Rows = list[dict[str, Any]]


class Store(Protocol):
    """A sink, empty at first, and its reader. Tests of features that are not in `can` are skipped."""

    @property
    def can(self) -> frozenset[str]:
        """Supported features: append, upsert, compare (keep the later of old and new rows), views, evolve (and use
        existing tables), refuse; and the names of deliveries."""
        ...

    def sink(self, table: str = "totals", **asked: Any) -> SparkSink: ...

    def read(self, table: str = "totals") -> Rows:
        """The rows of a table or a view in the order they were written; empty if it does not exist.

        Late elements are in `<table>_late`, dead letters in `<table>_dead`, the latest answers in `<table>_now`.
        """
        ...

    def count(self, table: str = "totals") -> int: ...

    def make(self, table: str, columns: str) -> None:
        """Create a table beforehand: `make("totals", "team text primary key, total bigint")`."""
        ...


SQL = frozenset({"append", "upsert", "compare", "views", "evolve", "refuse", *Delivery})


@dataclass(frozen=True)
class SqliteStore:
    path: Path
    can: frozenset[str] = SQL

    def sink(self, table: str = "totals", **asked: Any) -> SparkSink:
        return sl.sqlite(self.path, table=table, **asked)

    def read(self, table: str = "totals") -> Rows:
        with closing(sqlite3.connect(self.path)) as connection:
            connection.row_factory = sqlite3.Row
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [table]).fetchone():
                return []
            return [dict(row) for row in connection.execute(f"SELECT * FROM {quoted(table)}")]

    def count(self, table: str = "totals") -> int:
        with closing(sqlite3.connect(self.path)) as connection:
            return int(connection.execute(f"SELECT count(*) FROM {quoted(table)}").fetchone()[0])

    def make(self, table: str, columns: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self.path)) as connection:
            connection.execute(f"CREATE TABLE {quoted(table)} ({columns})")


@dataclass(frozen=True)
class DuckDbStore:
    path: Path
    can: frozenset[str] = SQL

    def sink(self, table: str = "totals", **asked: Any) -> SparkSink:
        return sl.duckdb(self.path, table=table, **asked)

    def read(self, table: str = "totals") -> Rows:
        with duckdb.connect(str(self.path)) as connection:
            ask = "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = ? ORDER BY column_index"
            columns = connection.execute(ask, [table]).fetchall()
            if not columns:
                return []
            shown = ", ".join(
                f"{quoted(name)}::VARCHAR" if kind.startswith("TIMESTAMP") else quoted(name) for name, kind in columns
            )
            found = connection.execute(f"SELECT {shown} FROM {quoted(table)}").fetchall()
        return [
            sqlite_row((name, kind, cell) for (name, kind), cell in zip(columns, row, strict=True)) for row in found
        ]

    def count(self, table: str = "totals") -> int:
        with duckdb.connect(str(self.path)) as connection:
            (found,) = connection.execute(f"SELECT count(*) FROM {quoted(table)}").fetchall()
        return int(found[0])

    def make(self, table: str, columns: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with duckdb.connect(str(self.path)) as connection:
            connection.execute(f"CREATE TABLE {quoted(table)} ({columns})")


def _no_tables_by_hand(store: object) -> AssertionError:
    return AssertionError(f"{type(store).__name__} has no tables made by hand: mark the case with what it needs")


@dataclass(frozen=True)
class FolderStore:
    """Sibling folders, one per table, read through their logs."""

    path: Path
    format: str
    can: frozenset[str] = frozenset({"append", "views", *Delivery})

    def sink(self, table: str = "totals", **asked: Any) -> SparkSink:
        return sl.folder(self._folder(table), format=self.format, **asked)

    def read(self, table: str = "totals") -> Rows:
        name, _, ending = table.rpartition("_")
        if ending not in ("late", "dead", "now"):
            name, ending = table, "panes"
        now = ending == "now"
        rows = sl.read_manifested(self._folder(name), "panes" if now else ending, now=now)
        return [{column: folder_cell(cell) for column, cell in row.items()} for row in rows.to_dicts()]

    def count(self, table: str = "totals") -> int:
        return sl.read_manifested(self._folder(table)).height

    def make(self, table: str, columns: str) -> None:
        raise _no_tables_by_hand(self)

    def _folder(self, table: str) -> Path:
        return self.path / sha256(table.encode()).hexdigest()[:8]


@dataclass(frozen=True)
class DeltaStore:
    """Sibling Delta tables, read through their logs."""

    path: Path
    can: frozenset[str] = frozenset({"append", "upsert", "compare", *Delivery})

    def sink(self, table: str = "totals", **asked: Any) -> SparkSink:
        return sl.delta(self._place(table) if table else "", **asked)

    def read(self, table: str = "totals") -> Rows:
        """The live files by the protocol itself: added and not removed, in log order."""
        place = Path(self._place(table))
        files: dict[str, None] = {}
        for record in sorted((place / "_delta_log").glob("*.json")):
            for action in map(json.loads, record.read_text().splitlines()):
                if "add" in action:
                    files[unquote(action["add"]["path"])] = None
                elif "remove" in action:
                    del files[unquote(action["remove"]["path"])]
        if not files:
            return []
        rows = pl.concat([pl.read_parquet(place / file) for file in files], how="diagonal")
        return [{column: folder_cell(cell) for column, cell in row.items()} for row in rows.to_dicts()]

    def count(self, table: str = "totals") -> int:
        from deltalake import DeltaTable  # noqa: PLC0415 - an extra

        return int(DeltaTable(self._place(table)).count())

    def make(self, table: str, columns: str) -> None:
        raise _no_tables_by_hand(self)

    def _place(self, table: str) -> str:
        return str(self.path / table)


def folder_cell(cell: Any) -> Any:
    """Convert values to SQLite's form. The ends of time become the ends of the calendar."""
    if isinstance(cell, datetime):
        ends = {1: "-infinity", 9999: "infinity"}
        return ends.get(cell.year) or instant(cell.isoformat())
    return int(cell) if isinstance(cell, bool) else cell


_numbers = count(1)


class PostgresStore:
    """A schema of its own on a real server."""

    can = SQL

    def __init__(self, dsn: str) -> None:
        self.dsn, self.schema = dsn, f"store {next(_numbers)}"
        self._reader = psycopg.connect(dsn, autocommit=True)
        self._reader.execute(f"CREATE SCHEMA {quoted(self.schema)}")
        self._reader.execute(f"SET search_path = {quoted(self.schema)}")
        self._reader.execute("SET timezone = 'UTC'")

    def sink(self, table: str = "totals", **asked: Any) -> SparkSink:
        return sl.postgres(table, dsn=self.dsn, schema=self.schema, **asked)

    def read(self, table: str = "totals") -> Rows:
        ask = (
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
        )
        columns = self._reader.execute(ask, [quoted(table)]).fetchall()
        if not columns:
            return []
        shown = ", ".join(
            f"{quoted(name)}::text" if kind.startswith("timestamp") else quoted(name) for name, kind in columns
        )
        found = self._reader.execute(f"SELECT {shown} FROM {quoted(table)}").fetchall()
        return [
            sqlite_row((name, kind, cell) for (name, kind), cell in zip(columns, row, strict=True)) for row in found
        ]

    def count(self, table: str = "totals") -> int:
        (found,) = self._reader.execute(f"SELECT count(*) FROM {quoted(table)}").fetchall()
        return int(found[0])

    def make(self, table: str, columns: str) -> None:
        self._reader.execute(f"CREATE TABLE {quoted(table)} ({columns})")

    def close(self) -> None:
        self._reader.close()


class KafkaStore:
    """Topics of their own on a real broker."""

    can = frozenset({"append", "upsert", *Delivery})

    def __init__(self, servers: str) -> None:
        self.servers, self._number, self._by_key = servers, next(_numbers), set[str]()
        self._made: set[str] = set()

    def topic(self, table: str) -> str:
        name, _, suffix = table.partition("_")
        return f"store-{self._number}-{name}" + (f".{suffix}" if suffix else "")

    def sink(self, table: str = "totals", **asked: Any) -> SparkSink:
        if table not in self._made:
            create_topics(self.servers, Topic(self.topic(table), 1))
            self._made.add(table)
        mode = asked.pop("mode", "upsert" if "key" in asked else "append")
        if mode == "upsert":
            self._by_key.add(table)
        return sl.kafka_topic(self.topic(table), servers=self.servers, mode=mode, **asked)

    def records(self, table: str = "totals") -> list[Any]:
        return records_of(self.servers, self.topic(table))

    def read(self, table: str = "totals") -> Rows:
        found = self.records(table)
        if table in self._by_key:
            latest = {record.key(): record for record in found}
            found = [record for record in latest.values() if record.value() is not None]
        return [self._told(record) for record in found]

    def _told(self, record: Any) -> dict[str, Any]:
        batch = int(dict(record.headers())["strandline-batch"].split(b"/")[1])
        if record.topic().endswith(".dead"):
            letter = from_json(record.value(), record.topic())
            return {name: cell for name, cell in letter.items() if cell is not None} | {"batch": batch}
        row = json.loads(record.value())
        return {name: _read_as(name, cell) for name, cell in row.items()}

    def count(self, table: str = "totals") -> int:
        """Read a topic with one transaction from near its end; the transaction marker is its last record."""
        topic = self.topic(table)
        until = ends(admin_of(self.servers, Security()), [topic])
        last = until[topic]["0"] - 2
        with reader(self.servers, Security()) as consumer:
            found = [record.offset() for record in records_from(consumer, {topic: {"0": last - 2}}, until)]
        assert found == [last - 2, last - 1, last]
        return last + 1

    def make(self, table: str, columns: str) -> None:
        raise _no_tables_by_hand(self)


class ValkeyStore:
    """An emptied database of a real server, with a prefix of its own."""

    can = frozenset({"upsert", "compare", *Delivery})

    def __init__(self, url: str) -> None:
        self.url, self._number = url, next(_numbers)
        self.client: Any = valkey.Valkey.from_url(url)
        self.client.flushdb()

    def prefix(self, table: str = "totals") -> str:
        return f"store {self._number} {table}"

    def sink(self, table: str = "totals", **asked: Any) -> SparkSink:
        return sl.valkey(self.url, prefix=self.prefix(table), **{k: v for k, v in asked.items() if k != "mode"})

    def read(self, table: str = "totals") -> Rows:
        name, _, ending = table.rpartition("_")
        if ending in ("late", "dead"):
            lines = [content for _, content in self.client.xrange(f"{self.prefix(name)}.{ending}")]
            return [self._letter(each) if ending == "dead" else self._row(each[b"row"]) for each in lines]
        keys = [*self.client.scan_iter(f"{self.prefix(table)}:*")]
        rows = [self._row(value) for value in self.client.mget(keys)] if keys else []
        return sorted(rows, key=lambda row: row["batch"])

    def _row(self, line: bytes) -> dict[str, Any]:
        row = json.loads(line)
        row.pop("@version", None)
        return {name: _read_as(name, cell) for name, cell in row.items()}

    def _letter(self, content: dict[bytes, bytes]) -> dict[str, Any]:
        letter = from_json(content[b"row"], "a stream")
        return {name: cell for name, cell in letter.items() if cell is not None} | {"batch": int(content[b"batch"])}

    def count(self, table: str = "totals") -> int:
        """All keys of a database that holds nothing else."""
        return int(self.client.dbsize()) - len(self.client.keys(f"{self.prefix(table)}.*"))

    def make(self, table: str, columns: str) -> None:
        raise _no_tables_by_hand(self)

    def close(self) -> None:
        self.client.close()


def records_of(servers: str, topic: str) -> list[Any]:
    """Read committed records only."""
    until = ends(admin_of(servers, Security()), [topic])
    with reader(servers, Security()) as consumer:
        return [*records_from(consumer, {topic: dict.fromkeys(until[topic], 0)}, until)]


def _read_as(name: str, cell: Any) -> Any:
    """Convert a cell to SQLite's form."""
    if isinstance(cell, bool):
        return int(cell)
    if name == "bytes":
        return b64decode(cell)
    return instant(cell) if isinstance(cell, str) and re.fullmatch(r"\d{4}-.+T.+Z", cell) else cell


def sqlite_row(cells: Iterable[tuple[str, str, Any]]) -> dict[str, Any]:
    """Convert a row to SQLite's form."""
    return {name: instant(cell) if kind.upper().startswith("TIMESTAMP") else cell for name, kind, cell in cells}


def instant(text: str | None) -> str | None:
    if text is None or text.endswith("infinity"):
        return text
    at = datetime.fromisoformat(text)
    at = at.astimezone(UTC) if at.tzinfo else at
    return at.strftime("%Y-%m-%d %H:%M:%S.") + f"{at.microsecond // 1000:03}"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
