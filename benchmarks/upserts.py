"""Windows kept up to date in PostgreSQL: runs of ours and of what is written by hand, in turns, each table judged."""

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import polars as pl
import psycopg

from benchmarks import corpus as corpora
from benchmarks import oracle
from benchmarks.corpus import Corpus
from benchmarks.runs import Run, last_words, scratch, started, weighed
from benchmarks.suite import TUMBLING, Cell
from benchmarks.workloads import Contestant

CELLS: Final = {"ours-upsert": "ours", "by-hand-upsert": "by-hand"}


@dataclass(frozen=True, slots=True)
class Upserts:
    """The stream that is kept up to date, how often it is before it counts, and batches that do not count either."""

    corpus: Corpus
    warm_runs: int
    warm_up: int


def measure(asked: Upserts, name: str, dsn: str, round_: int, work: Path) -> Run:
    """One contestant once; a table that is not as the judge has it gives no number."""
    folder, _ = corpora.written(asked.corpus, work / "corpora")
    home = scratch(work)
    table = f"upserts_{home.name.replace('-', '_')}".lower()
    told = {"contestant": CELLS[name], "folder": str(folder), "dsn": dsn, "table": table, "warm_up": asked.warm_runs}
    (home / "order.json").write_text(json.dumps(told))
    samples, code = started("benchmarks.upserting", home)
    if code != 0:
        return Run(name, round_, failure=last_words(home, code))
    batches = json.loads((home / "run.json").read_text())["batches"]
    contestant = Contestant.OURS if CELLS[name] == "ours" else Contestant.NATIVE_ROCKSDB
    cell = Cell(name, contestant, TUMBLING, asked.corpus, asked.warm_up)
    run = judged(weighed(cell, round_, batches, samples), folder, contestant, cells_of(dsn, table), home)
    shutil.rmtree(home, ignore_errors=True)
    return run


def cells_of(dsn: str, table: str) -> pl.DataFrame:
    """What a reader finds, as the judge reads it; then the tables go."""
    bounds = ", ".join(f"(extract(epoch FROM window_{each}) * 1000)::bigint" for each in ("start", "end"))
    ask = f"SELECT key, {bounds}, total, plays FROM {table}"  # noqa: S608 - a name of our own
    with psycopg.connect(dsn, autocommit=True) as connection:
        rows = connection.execute(ask.encode()).fetchall()
        mine = connection.execute(
            "SELECT tablename FROM pg_tables WHERE starts_with(tablename, %s)", [table]
        ).fetchall()
        for (each,) in mine:
            connection.execute(f"DROP TABLE {each} CASCADE".encode())
    names = ("key", "start_ms", "end_ms", "total", "plays")
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.Int64), orient="row").with_columns(sign=pl.lit(1))


def judged(run: Run, folder: Path, contestant: Contestant, found: pl.DataFrame, home: Path) -> Run:
    """Whether the table holds every window as it should be."""
    found.write_parquet(home / "found.parquet")
    verdict = oracle.expect(folder, TUMBLING, contestant).judge(str(home / "found.parquet"))
    failure = "" if verdict.agrees else f"{verdict.wrong} of {verdict.cells} windows are wrong, as in {verdict.example}"
    return replace(run, failure=failure, checked={"cells": verdict.cells})
