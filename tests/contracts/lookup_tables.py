"""Lookup tables with the same rows, one of each kind, for the contract of lookups."""

import json
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

import duckdb
import polars as pl
import psycopg
import valkey

import strandline as sl
from strandline.ports.lookups import CheckedLookup

COLUMNS: Final = "user_id long, name string, score double, active boolean"
SHAPE: Final = {"user_id": pl.Int64, "name": pl.String, "score": pl.Float64, "active": pl.Boolean}

Row = tuple[int, str | None, float | None, bool | None]

_numbers = count(1)


def frame(rows: Sequence[Row]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SHAPE, orient="row")


@dataclass
class Table:
    """A table that a test fills, and the lookup that reads it."""

    lookup: Callable[[str], CheckedLookup]
    """Returns the lookup with these columns."""
    put: Callable[[Sequence[Row]], None]
    """Replaces all rows."""
    can: frozenset[str] = frozenset({"types", "columns", "missing"})
    """What is refused before a job starts: other types, unknown columns, a missing table."""
    missing: Callable[[], CheckedLookup] | None = None
    """A lookup in a table that does not exist."""
    close: Callable[[], None] = field(default=lambda: None)


def sqlite_table(folder: Path) -> Table:
    path = folder / "shop.db"
    with sqlite3.connect(path) as made:
        made.execute("PRAGMA journal_mode=WAL")
        made.execute("CREATE TABLE users (user_id INTEGER PRIMARY KEY, name TEXT, score REAL, active INTEGER)")

    def put(rows: Sequence[Row]) -> None:
        with sqlite3.connect(path) as shop:
            shop.execute("DELETE FROM users")
            shop.executemany("INSERT INTO users VALUES (?, ?, ?, ?)", rows)

    return Table(
        lambda columns: sl.lookup_sqlite(path, columns, table="users"),
        put,
        missing=lambda: sl.lookup_sqlite(path, COLUMNS, table="people"),
    )


def duckdb_table(folder: Path) -> Table:
    path = folder / "shop.duckdb"
    with duckdb.connect(str(path)) as made:
        made.execute("CREATE TABLE users (user_id BIGINT, name VARCHAR, score DOUBLE, active BOOLEAN)")

    def put(rows: Sequence[Row]) -> None:
        with duckdb.connect(str(path)) as shop:
            shop.execute("DELETE FROM users")
            if rows:
                shop.executemany("INSERT INTO users VALUES (?, ?, ?, ?)", [list(row) for row in rows])

    return Table(
        lambda columns: sl.lookup_duckdb(path, columns, table="users"),
        put,
        missing=lambda: sl.lookup_duckdb(path, COLUMNS, table="people"),
    )


def delta_table(folder: Path) -> Table:
    path = str(folder / "users")
    frame([]).write_delta(path)
    return Table(
        lambda columns: sl.lookup_delta(path, columns),
        lambda rows: frame(rows).write_delta(path, mode="overwrite"),
        missing=lambda: sl.lookup_delta(str(folder / "people"), COLUMNS),
    )


def parquet_table(folder: Path) -> Table:
    path = folder / "users"
    path.mkdir()

    def put(rows: Sequence[Row]) -> None:
        frame(rows).write_parquet(path / "part.parquet")

    put([])
    return Table(
        lambda columns: sl.lookup_parquet(path, columns),
        put,
        missing=lambda: sl.lookup_parquet(folder / "people", COLUMNS),
    )


class _Rows:
    """Rows that a function or a server answers from."""

    def __init__(self) -> None:
        self.by_key: dict[int, Row] = {}

    def put(self, rows: Sequence[Row]) -> None:
        self.by_key = {row[0]: row for row in rows}

    def find(self, keys: pl.DataFrame) -> pl.DataFrame:
        return frame([self.by_key[key] for key in keys["user_id"] if key in self.by_key])


def function_table() -> Table:
    rows = _Rows()
    return Table(lambda columns: sl.lookup_function(rows.find, columns), rows.put, frozenset())


def http_table(*, many: bool) -> Table:
    rows = _Rows()
    server = users_server(lambda key: rows.by_key.get(key))  # noqa: PLW0108 - the rows are replaced
    address = f"http://127.0.0.1:{server.server_port}/users"

    def close() -> None:
        server.shutdown()
        server.server_close()

    url = f"{address}?ids={{user_id}}" if many else f"{address}/{{user_id}}"
    return Table(lambda columns: sl.lookup_http(url, columns, many=many), rows.put, frozenset(), close=close)


def users_server(find: Callable[[int], Row | None]) -> ThreadingHTTPServer:
    """Start a service that answers `/users/7` and `/users?ids=7,8`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            ids = parse_qs(parts.query).get("ids")
            if ids:
                found = [find(int(key)) for key in ids[0].split(",")]
                self._answer([dict(zip(SHAPE, row, strict=True)) for row in found if row is not None])
                return
            row = find(int(unquote(parts.path.rpartition("/")[2])))
            self._answer(None if row is None else dict(zip(SHAPE, row, strict=True)))

        def _answer(self, content: object) -> None:
            body = json.dumps(content).encode()
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=[0.02], daemon=True).start()
    return server


def postgres_table(dsn: str) -> Table:
    schema = f"lookups_{next(_numbers)}"
    shop = psycopg.connect(dsn, autocommit=True)
    shop.execute(f'CREATE SCHEMA "{schema}"')
    shop.execute(f'SET search_path = "{schema}"')
    shop.execute("CREATE TABLE users (user_id bigint, name text, score double precision, active boolean)")

    def put(rows: Sequence[Row]) -> None:
        with shop.transaction():
            shop.execute("DELETE FROM users")
            with shop.cursor() as cursor:
                cursor.executemany("INSERT INTO users VALUES (%s, %s, %s, %s)", rows)

    return Table(
        lambda columns: sl.lookup_postgres("users", columns, dsn=dsn, schema=schema),
        put,
        missing=lambda: sl.lookup_postgres("people", COLUMNS, dsn=dsn, schema=schema),
        close=shop.close,
    )


def valkey_table(url: str) -> Table:
    client: Any = valkey.Valkey.from_url(url)
    prefix = f"users {next(_numbers)}"

    def put(rows: Sequence[Row]) -> None:
        for key in client.scan_iter(f"{prefix}:*"):
            client.delete(key)
        for row in rows:
            values: Mapping[str, Any] = dict(zip(SHAPE, row, strict=True))
            written = {name: str(each) for name, each in values.items() if each is not None and name != "user_id"}
            client.hset(f"{prefix}:{row[0]}", mapping=written or {"empty": ""})

    return Table(
        lambda columns: sl.lookup_valkey(url, columns, key=f"{prefix}:{{user_id}}"),
        put,
        frozenset(),
        close=client.close,
    )
