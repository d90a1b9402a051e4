"""Join benchmark without Spark: the streams, the judge against the kernel, and the page."""

import json
from pathlib import Path

import polars as pl
import pytest

import strandline as sl
from benchmarks import render
from benchmarks.joins import bench, contestant, judge
from benchmarks.joins.events import COLUMNS, DELAY, SIDES, WITHIN, Streams, batch_of, written
from benchmarks.results import Measured, to_results
from benchmarks.runs import Run
from benchmarks.workloads import Contestant
from strandline.plan.compile import to_stages
from strandline.plan.pipeline import Elements, read
from tests.benchmarks.sample import results
from tests.plan.endpoints import NoRunner, PaperSink
from tests.spark.by_hand import Carrier
from tests.spark.test_flows import Typed

TINY = Streams(batches=8, per_batch=10_000, rate=1_000, keys=10_000)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(TINY, tmp_path_factory.mktemp("joins"))[0]


def emitted(how: str, tmp_path: Path) -> str:
    """Play the streams on the kernel; return where its rows are."""

    def side(name: str) -> Elements:
        return read(Typed(name, columns=COLUMNS), NoRunner()).event_time("at", sl.bounded(seconds=DELAY))

    joined = side("left").join(side("right")).on("key").within(after=f"{WITHIN}s", how=how)
    carrier = Carrier(to_stages(joined.write(PaperSink()).root))
    for number in range(TINY.batches):
        frames = {side: [pl.DataFrame(batch_of(TINY, side, number))] for side, _ in enumerate(SIDES)}
        rows = carrier.carry_frames(frames, number)[0].panes
        if rows is not None:
            rows.select("number", "number_right").write_parquet(tmp_path / f"{number}.parquet")
    return f"{tmp_path}/*.parquet"


@pytest.mark.parametrize("how", ["inner", "left"])
def test_the_judge_agrees_with_the_kernel_and_finds_what_is_missing(folder: Path, tmp_path: Path, how: str) -> None:
    output = emitted(how, tmp_path)
    expected = judge.expect(folder, outer=how == "left")
    assert expected.rows > TINY.per_batch
    assert expected.judge(output).agrees, expected.judge(output)
    first = tmp_path / "3.parquet"
    rows = pl.read_parquet(first)
    rows[1:].write_parquet(first)
    assert expected.judge(output).wrong == 1
    pl.concat([rows, rows[:1]]).write_parquet(first)
    assert expected.judge(output).wrong == 1


def test_the_streams_depend_on_their_value_only(tmp_path: Path) -> None:
    assert batch_of(TINY, 0, 3).equals(batch_of(TINY, 0, 3))
    assert not batch_of(TINY, 0, 3).equals(batch_of(TINY, 1, 3))
    assert written(TINY, tmp_path / "one")[1] == written(TINY, tmp_path / "other")[1]


def test_every_row_compares_cells_that_are_measured_and_checked() -> None:
    for suite in (bench.full(), bench.quick()):
        cells = {cell.name: cell for group in suite.groups for cell in group.cells}
        assert {name for row in (*suite.rows, *suite.reported) for name in row.cells} == {*cells}
        assert all(cell.check and cell.streams.batches > max(cell.warm_up, bench.CHECKED) for cell in cells.values())


def test_an_order_travels_to_the_process_that_runs_it(tmp_path: Path) -> None:
    order = {"contestant": "ours", "how": "left", "folder": "/there", "check": None}
    (tmp_path / "order.json").write_text(json.dumps(order))
    found = contestant.read_order(tmp_path / "order.json")
    assert found == contestant.Order(Contestant.OURS, "left", "/there", None, tmp_path)


def test_a_run_that_does_not_account_for_every_element_has_no_number() -> None:
    counts = {"read": 10, "again": 0, "contributed": 10, "filtered": 0, "late": 0, "dead": 0}
    assert bench.miscounted({"counts": counts}) == ""
    assert bench.miscounted({}) == ""
    assert "lost count" in bench.miscounted({"counts": counts | {"contributed": 9, "late": 1}})


def test_the_page_has_the_figures() -> None:
    runs = [Run(name, 0, 100, cost, 1) for name, cost in (("ours", 1), ("native-rocksdb", 4), ("native-memory", 2))]
    told = to_results(Measured(runs), bench.full(), "strandline bench joins", {})
    assert "| native interval join, inner, RocksDB, 100 k keys | 4.00x |" in render.page(results(), of_joins=told)
