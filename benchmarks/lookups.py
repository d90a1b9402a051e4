"""Measure a lookup join against a real PostgreSQL, with its cache cold and warm: events per second of one process.

    python -m benchmarks.lookups [--keys 100000] [--events 1000000] [--batch 50000]

One process runs what a task of Spark runs: distinct keys, cache, requests, join. Cold: every batch has keys that were
never asked for, until all have been. Warm: the same events once more, at an age at which every answer is still cached.
Every result is compared with the rows that were written.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
import psycopg

import strandline as sl
from strandline.execution.batch import Batch
from strandline.execution.lookups.lookups import Lookups
from strandline.kernel.blocks.block import OFFSET, PARTITION
from strandline.model.elements import duration
from strandline.model.lookup_join import LookupJoin, LookupLimits
from strandline.ports.sinks import Stamp
from strandline.services.catalogue import service

COLUMNS = "user_id long, name string, tier string, score double"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=50_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="strandline-lookups-") as home:
        server = service("postgres", Path(home), leashed=True)
        server.start()
        try:
            fill(server.address, asked.keys)
            batches = events(asked.keys, asked.events, asked.batch)
            join = lookup(server.address, asked.keys)
            for name in ("cold", "warm"):
                begun = time.perf_counter()
                many = sum(run(join, rows) for rows in batches)
                seconds = time.perf_counter() - begun
                print(f"{name}: {many:,} events in {seconds:.2f} s, {many / seconds:,.0f} events/s")
        finally:
            server.stop()


def fill(dsn: str, keys: int) -> None:
    with psycopg.connect(dsn, autocommit=True) as shop:
        shop.execute("CREATE TABLE users (user_id bigint PRIMARY KEY, name text, tier text, score double precision)")
        shop.execute(
            "INSERT INTO users SELECT n, 'user ' || n, CASE WHEN n %% 5 = 0 THEN 'gold' ELSE 'plain' END, n / 2.0 "
            "FROM generate_series(0, %s - 1) n",
            [keys],
        )
        shop.execute("ANALYZE users")


def events(keys: int, many: int, size: int) -> list[pl.DataFrame]:
    """Return batches of events with even keys, one in twenty without a row in the table."""
    drawn = np.random.default_rng(7).integers(0, keys + keys // 20, many)
    return [
        pl.DataFrame({PARTITION: ["p"] * part.size, OFFSET: range(part.size), "user_id": part})
        for part in np.split(drawn, range(size, many, size))
    ]


def lookup(dsn: str, keys: int) -> LookupJoin:
    table = sl.lookup_postgres("users", COLUMNS, dsn=dsn)
    table.check(("user_id",))
    columns = tuple((name, name, kind) for name, kind in table.table_columns.items() if name != "user_id")
    limits = LookupLimits(cache_for=duration("1h"), cache_missing_for=duration("1h"), cache_rows=2 * keys)
    return LookupJoin(table, (("user_id", "user_id"),), columns, limits=limits)


def run(join: LookupJoin, rows: pl.DataFrame) -> int:
    task = Lookups(Batch(0, stamps=(Stamp("benchmark", 1, 0),)), "0", "route")
    passed = task.enrich(rows, join, 0)
    wrong = passed.rows.filter(pl.col("name").ne_missing(expected()))
    if passed.rows.height != rows.height or wrong.height:
        raise SystemExit(f"{wrong.height} rows have another name than their user")
    return rows.height


def expected() -> pl.Expr:
    return pl.when(pl.col("tier").is_not_null()).then(pl.format("user {}", "user_id"))


if __name__ == "__main__":
    main()
