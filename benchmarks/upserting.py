"""Run one upsert contestant into PostgreSQL, ours or hand-written, in its own process and JVM.

usage: python -m benchmarks.upserting ORDER.json      the file names the run; the result is written beside it
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg

import strandline as sl
from benchmarks import sessions
from benchmarks.contestant import batches_of, rows_of
from benchmarks.feeds import EVENTS, Folder
from benchmarks.ours import kind_of, source_of
from benchmarks.peers import spark as peers
from benchmarks.sessions import JARS
from benchmarks.suite import TUMBLING
from benchmarks.workloads import DELAY, Contestant
from strandline.spark.launch.jars import jars_folder, pinned
from strandline.spark.launch.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEY: Final = ("key", "window_start", "window_end")
COLUMNS: Final = "key bigint, window_start timestamptz, window_end timestamptz, total bigint, plays bigint"


def main(arguments: list[str]) -> None:
    order = json.loads(Path(arguments[0]).read_text())
    home = Path(arguments[0]).parent
    by_us = order["contestant"] == "ours"
    spark, play = _session(home, plain=not by_us), ours if by_us else by_hand
    for number in range(order["warm_up"]):
        play(spark, order["folder"], order["dsn"], f"{order['table']}_warm_{number}", home / f"warm-{number}")
    batches = play(spark, order["folder"], order["dsn"], order["table"], home / "timed")
    (home / "run.json").write_text(json.dumps({"batches": batches}))
    spark.stop()


def _session(home: Path, *, plain: bool) -> "SparkSession":
    jars = ",".join(str(jars_folder() / jar.file) for jar in pinned(JARS))
    wanted = sessions.settings_of(Contestant.NATIVE_ROCKSDB) | {"spark.jars": jars}
    return start_session("strandline-bench", log=home / "spark.log", overrides=wanted, plain=plain)


def ours(spark: "SparkSession", folder: str, dsn: str, table: str, checkpoint: Path) -> list[dict[str, Any]]:
    """Run ours: one pane per change, like Spark's update mode; the table holds the latest, each batch exactly once."""
    panes = (
        sl.read(source_of(Folder(folder)))
        .event_time("at", sl.bounded(seconds=DELAY))
        .key_by("key")
        .window(kind_of(TUMBLING.window))
        .trigger(sl.repeatedly(sl.after_count(1)))
        .on_time_pane("if_non_empty")
        .accumulate(sl.accumulating)
        .aggregate(total=sl.sum("value"), plays=sl.count())
    )
    read: dict[int, int] = {}
    written = panes.write(sl.postgres(table, dsn=dsn, mode="upsert"))
    job = written.run(
        spark, checkpoint=checkpoint, available_now=True, listener=lambda each: read.update({each.batch: rows_of(each)})
    )
    query = spark.streams.active[0]
    job.await_end()
    return batches_of(query.recentProgress, read)


def by_hand(spark: "SparkSession", folder: str, dsn: str, table: str, checkpoint: Path) -> list[dict[str, Any]]:
    """Run Spark's windows in update mode; each batch by JDBC into staging, then ON CONFLICT."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {table} ({COLUMNS}, PRIMARY KEY ({', '.join(KEY)}))".encode())
        connection.execute(f"CREATE UNLOGGED TABLE {table}_staging ({COLUMNS})".encode())
    windows = peers.native(peers.stream(spark, folder, columns=EVENTS), TUMBLING.window)
    bounds = ("window.start AS window_start", "window.end AS window_end")
    rows = windows.selectExpr("key", *bounds, "total", "plays")
    query = (
        rows.writeStream.outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .foreachBatch(_upsert(dsn, table))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return batches_of(query.recentProgress)


def _upsert(dsn: str, table: str) -> "Callable[[DataFrame, int], None]":
    server, _, database = dsn.partition("@")[2].partition("/")
    options = {
        # Many rows per statement, many statements per round trip, as the driver's guide advises.
        "url": f"jdbc:postgresql://{server}/{database}?reWriteBatchedInserts=true",
        "user": dsn.partition("://")[2].partition("@")[0],
        "driver": "org.postgresql.Driver",
        "dbtable": f"{table}_staging",
        "batchsize": "10000",
        "truncate": "true",
    }
    merge = (
        f"INSERT INTO {table} SELECT * FROM {table}_staging ON CONFLICT ({', '.join(KEY)}) "  # noqa: S608
        "DO UPDATE SET total = excluded.total, plays = excluded.plays"
    )

    def upsert(rows: "DataFrame", batch: int) -> None:  # noqa: ARG001 - Spark's way to call it
        rows.write.format("jdbc").options(**options).mode("overwrite").save()
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(merge.encode())

    return upsert


if __name__ == "__main__":
    main(sys.argv[1:])
