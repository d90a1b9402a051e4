"""The benchmark of delivery, small and without a JVM: what is compared, how it is judged, what the page says."""

from pathlib import Path

import polars as pl
import pytest

from benchmarks import delivery, render, upserts
from benchmarks.corpus import Corpus, written
from benchmarks.deliveries import Pair, batch_of, expected, measure
from benchmarks.oracle import expect
from benchmarks.results import Measured, to_results
from benchmarks.runs import Run
from benchmarks.stores import Found, SqliteFile, Stores
from benchmarks.suite import TUMBLING
from benchmarks.turns import Asked
from benchmarks.workloads import Contestant
from strandline.errors import PlanError
from tests.benchmarks.sample import results

SMALL = Pair("sqlite", rows=50, batches=3, warm_up=1)


def test_every_row_compares_cells_that_are_measured() -> None:
    for plan in (delivery.full(), delivery.quick()):
        names = [*(cell for pair in plan.pairs for cell in pair.cells), *upserts.CELLS]
        rows = (*plan.suite.rows, *plan.suite.reported)
        assert sorted(name for row in rows for name in (row.cell, row.peer)) == sorted(names)
        assert [row.name.partition("-")[0] for row in plan.suite.rows] == ["sqlite", "postgres", "kafka", "upsert"]


def test_what_is_to_be_measured_is_named_by_sink_or_by_row() -> None:
    plan = delivery.quick()
    assert delivery.chosen_of(plan, Asked(only=("kafka",))) == {"kafka-10000", "kafka-1000"}
    assert delivery.chosen_of(plan, Asked(only=("upsert", "sqlite-1000"))) == {"upsert", "sqlite-1000"}
    assert len(delivery.chosen_of(plan, Asked())) == len(plan.pairs) + 1
    floors = {"sqlite-10000", "postgres-10000", "kafka-10000", "upsert"}
    assert delivery.chosen_of(plan, Asked(quick=True)) == floors
    with pytest.raises(PlanError, match="nothing called 'oracle'.*sqlite"):
        delivery.chosen_of(plan, Asked(only=("oracle",)))


def test_both_sides_get_every_row_and_are_timed(tmp_path: Path) -> None:
    with Stores(tmp_path) as stores:
        exactly, least = measure(SMALL, stores.store("sqlite"), 0)
    assert (exactly.cell, least.cell) == ("sqlite-50-exactly", "sqlite-50-at-least")
    for run in (exactly, least):
        assert (run.failure, run.events, run.checked, len(run.batch_seconds)) == ("", 150, {"cells": 200}, 4)
        assert 0 < run.wall_seconds < sum(run.batch_seconds)
    assert not [*tmp_path.glob("*.db*")]


class Twofold(SqliteFile):
    """One of its rows is found twice, in place of another."""

    def found(self, table: str) -> Found:
        rows, different, total = SqliteFile.found(self, table)
        return Found(rows, different - 1, total)


def test_a_side_that_has_a_row_twice_has_no_number(tmp_path: Path) -> None:
    runs = measure(SMALL, Twofold(tmp_path / "rows.db"), 0)
    assert all("different=199" in run.failure for run in runs)
    told = to_results(Measured(runs, by_wall=True), delivery.quick().suite, "strandline bench delivery", {})
    assert {row["reached"] for row in told["rows"]} == {"not measured"}


def test_what_is_expected_is_what_the_batches_hold() -> None:
    rows = pl.concat([batch_of(SMALL, number) for number in range(4)])
    assert Found(rows.height, rows["id"].n_unique(), int(rows["value"].sum())) == expected(SMALL)


def test_a_table_of_windows_is_held_against_the_judge(tmp_path: Path) -> None:
    folder, _ = written(Corpus(20, 2, 2_000), tmp_path)
    cells = "SELECT key, start_ms, end_ms, total, plays, 1 AS sign FROM expected"
    rows = expect(folder, TUMBLING, Contestant.OURS).connection.execute(cells).fetchall()
    right = pl.DataFrame(rows, ["key", "start_ms", "end_ms", "total", "plays", "sign"], orient="row")
    run = Run("ours-upsert", 0)
    assert upserts.judged(run, folder, Contestant.OURS, right, tmp_path).failure == ""
    wrong = right.with_columns(total=pl.col("total") + (pl.int_range(pl.len()) == 0))
    assert "1 of " in upserts.judged(run, folder, Contestant.OURS, wrong, tmp_path).failure


def test_the_page_tells_of_delivery_by_the_clock() -> None:
    plan = delivery.full()
    names = [*(cell for pair in plan.pairs for cell in pair.cells), *upserts.CELLS]
    runs = [
        Run(name, 0, 1_000, cpu_seconds=1, wall_seconds=5 if name.startswith("by-hand") else 1, checked={"cells": 7})
        for name in names
    ]
    told = to_results(Measured(runs, by_wall=True), plan.suite, "strandline bench delivery", {})
    assert [(row["ratio"], row["reached"]) for row in told["rows"]] == [*[(1.0, "goal")] * 3, (5.0, "goal")]
    page = render.page(results(), of_delivery=told)
    assert "| ours-upsert | 1,000 | 1,000 | 7 |" in page
    assert "Where the goal of delivery is not reached" in page
    failed = to_results(Measured([Run("ours-upsert", 0, failure="lost")]), plan.suite, "strandline bench delivery", {})
    assert "| ours-upsert | failed |" in render.page(results(), of_delivery=failed)
