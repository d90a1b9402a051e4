"""Measure upserts of windows into PostgreSQL, ours and hand-written alternately, each table checked."""

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
    """The upsert stream, its warm-up runs, and its uncounted batches."""

    corpus: Corpus
    warm_runs: int
    warm_up: int


def measure(asked: Upserts, name: str, dsn: str, round_: int, work: Path) -> Run:
    """Run one contestant once; a table that differs from the expected one gives no number."""
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
    """Read the tables as cells, then drop them."""
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
    """Check that the table holds all windows as expected."""
    found.write_parquet(home / "found.parquet")
    verdict = oracle.expect(folder, TUMBLING, contestant).judge(str(home / "found.parquet"))
    failure = "" if verdict.agrees else f"{verdict.wrong} of {verdict.cells} windows are wrong, as in {verdict.example}"
    return replace(run, failure=failure, checked={"cells": verdict.cells})
