"""Nexmark without Spark: the judge agrees with both players, finds what is wrong, and the page tells of it all."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from benchmarks import render
from benchmarks.meter import Sample
from benchmarks.nexmark import bench, native, oracle, ours
from benchmarks.nexmark.events import BID, Log, written
from benchmarks.nexmark.queries import LEFT_OUT, QUERIES
from benchmarks.results import Measured, to_results
from benchmarks.runs import Run
from benchmarks.turns import Asked
from benchmarks.workloads import Contestant
from strandline.execution.stateless_steps import run_operations
from strandline.model.elements import Element, Timestamp
from strandline.model.panes import Emitted
from strandline.model.steps import WindowedStep
from strandline.plan.compile import to_stages
from strandline.plan.lineage import paths_to
from strandline.plan.nodes import KeyedNode
from strandline.plan.stories.player_protocol import Player
from strandline.ports.sources import TaskReadSource
from strandline.reference.player import ReferencePlayer
from strandline.spark.sources.read_in_task import passes_no_row
from tests.benchmarks.sample import results
from tests.kernel.players import KernelPlayer

TINY = Log(batches=3, per_batch=2_000)
KEYS = {"q7": ("house",), "q11": ("bidder",), "q18": ("bidder", "auction"), "q19": ("auction",)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(TINY, tmp_path_factory.mktemp("log"))[0]


def batches(folder: Path, keys: tuple[str, ...]) -> list[list[Element]]:
    """The bids of a log, batch by batch, as players take them."""
    found = []
    for number in range(TINY.batches + 1):
        frame = pl.concat([pl.read_parquet(path) for path in sorted(folder.glob(f"{number:05d}-*.parquet"))])
        bids = frame.filter(pl.col("kind") == BID).with_columns(house=pl.lit(1), ms=pl.col("at").dt.epoch("ms"))
        found.append([
            Element(Timestamp(bid["ms"]), _key(bid, keys), {name: value for name, value in bid.items() if name != "at"},
                    offset=number * TINY.per_batch + place)
            for place, bid in enumerate(bids.iter_rows(named=True))
        ])  # fmt: skip
    return found


def _key(row: dict[str, Any], keys: tuple[str, ...]) -> Any:
    """Players know a key of one column; of several, it is their text."""
    return row[keys[0]] if len(keys) == 1 else ",".join(str(row[name]) for name in keys)


def player_of(query: str, kind: type[ReferencePlayer] | type[KernelPlayer]) -> Player:
    asked = ours.ASKED[query]("nowhere").root
    assert isinstance(asked, KeyedNode)
    assert isinstance(asked.operator, WindowedStep)
    (path,) = paths_to(asked.inputs[0])
    assert path.time is not None
    return kind(asked.operator, path.time.watermark)


def keep(said: Emitted, query: str, batch: int, folder: Path) -> None:
    """What a player said, as a contestant leaves it for the judge."""
    keys = KEYS[query]
    rows = [
        {
            **dict(zip(keys, [pane.key] if len(keys) == 1 else map(int, pane.key.split(",")), strict=True)),
            **pane.values,
            "@start": pane.window.start.ms,
            "@end": pane.window.end.ms,
        }
        for pane in said.panes
    ]
    if query in ("q18", "q19"):  # a global window has no bounds that a calendar knows
        rows = [{name: value for name, value in row.items() if not name.startswith("@")} for row in rows]
    if rows:
        ours.as_rows(pl.DataFrame(rows), batch).write_parquet(folder / f"{batch}.parquet")


@pytest.mark.slow
@pytest.mark.parametrize("kind", [ReferencePlayer, KernelPlayer])
@pytest.mark.parametrize("query", [*KEYS])
def test_the_judge_agrees_with_the_players(
    query: str, kind: type[ReferencePlayer] | type[KernelPlayer], folder: Path, tmp_path: Path
) -> None:
    player = player_of(query, kind)
    for batch, elements in enumerate(batches(folder, KEYS[query])):
        keep(player.feed(elements), query, batch, tmp_path)
    verdict = oracle.judge(folder, QUERIES[query], Contestant.OURS, f"{tmp_path}/*.parquet")
    assert verdict.agrees, verdict


PLAIN = {
    "Count": pl.Expr.count, "CountDistinct": lambda each: each.drop_nulls().n_unique(), "Max": pl.Expr.max,
    "Min": pl.Expr.min, "Mean": pl.Expr.mean, "Sum": pl.Expr.sum,
}  # fmt: skip
"""Aggregates over a whole log, in plain Polars."""


@pytest.mark.slow
@pytest.mark.parametrize("query", ["q0", "q1", "q2", "q14", "q15", "q16", "q17", "q21", "q22"])
def test_the_judge_agrees_with_what_a_question_computes_of_each_bid(query: str, folder: Path, tmp_path: Path) -> None:
    """What is done to rows is played as a task does it; what is summed up over them, in plain Polars."""
    asked = ours.ASKED[query](str(folder)).root
    (scan,) = to_stages(ours.pipeline(query, str(folder)).root).scans
    assert isinstance(scan.source, TaskReadSource)
    read = scan.source.by_name()
    uris = sorted(path.as_uri() for path in folder.glob("*.parquet"))
    passed = run_operations(pl.concat(read(uris)), scan.flows[0].operations)
    assert passed.failed is None
    rows = passed.rows
    if isinstance(asked, KeyedNode) and isinstance(asked.operator, WindowedStep):
        summed = [
            PLAIN[type(each).__name__](pl.col(str(each.column))).alias(name) for name, each in asked.operator.aggregates
        ]
        rows = rows.group_by(asked.keys).agg(summed)
    ours.as_rows(rows, 0).write_parquet(tmp_path / "said.parquet")
    verdict = oracle.judge(folder, QUERIES[query], Contestant.OURS, f"{tmp_path}/*.parquet")
    assert verdict.agrees, verdict


def test_an_answer_that_is_wrong_missing_or_said_twice_is_found(folder: Path, tmp_path: Path) -> None:
    bids = pl.concat([pl.read_parquet(path) for path in folder.glob("*.parquet")]).filter(pl.col("kind") == BID)
    answer = bids.filter(pl.col("auction") % 123 == 0).select("auction", "price", batch=pl.lit(0))

    def wrong(said: pl.DataFrame) -> int:
        said.write_parquet(tmp_path / "said.parquet")
        return oracle.judge(folder, QUERIES["q2"], Contestant.OURS, f"{tmp_path}/*.parquet").wrong

    assert wrong(answer) == 0
    assert wrong(answer[1:]) == 1
    assert wrong(pl.concat([answer, answer[:1]])) == 1
    assert wrong(answer.with_columns(price=pl.col("price") + 1)) == 2 * answer.height


@pytest.mark.slow
def test_of_equally_good_answers_one_must_be_said(folder: Path, tmp_path: Path) -> None:
    player = player_of("q7", ReferencePlayer)
    for batch, elements in enumerate(batches(folder, ("house",))):
        keep(player.feed(elements), "q7", batch, tmp_path)
    said = pl.concat([pl.read_parquet(path) for path in tmp_path.glob("*.parquet")])

    def wrong(rows: pl.DataFrame) -> int:
        for path in tmp_path.glob("*.parquet"):
            path.unlink()
        rows.write_parquet(tmp_path / "said.parquet")
        return oracle.judge(folder, QUERIES["q7"], Contestant.OURS, f"{tmp_path}/*.parquet").wrong

    assert wrong(said) == 0
    assert wrong(said[1:]) == wrong(pl.concat([said, said[:1]])) == 1
    assert wrong(said.with_columns(bidder=pl.lit(5))) >= said.height


def test_sessions_meet_before_they_are_judged_or_each_bid_is_judged_alone() -> None:
    """A bid at 5 s comes when its own session would be over, and is still part of one that is open with us."""
    bids = [(0, 1, 0), (0, 1, 8_000), (1, 1, 5_000), (2, 1, 60_000)]
    marks = {0: (0, 0, 16_000), 1: (16_000, 0, 17_000), 2: (17_000, 16_000, 70_000)}
    assert [*oracle.sessions(bids, marks, merges_first=True)] == [(1, 0, 18_000, 3), (1, 60_000, 70_000, 1)]
    late = {**marks, 1: (16_000, 15_500, 17_000)}
    assert [*oracle.sessions(bids, late, merges_first=False)] == [(1, 0, 18_000, 2), (1, 60_000, 70_000, 1)]


def test_every_question_is_asked_of_us_and_of_spark_where_it_has_an_answer() -> None:
    assert [*ours.ASKED] == [*QUERIES]
    assert {*QUERIES} - {*native.ASKED} == {"q19"}
    assert not {*QUERIES} & {*LEFT_OUT}
    for suite in (bench.full(), bench.quick()):
        names = {cell.name for group in suite.groups for cell in group.cells}
        assert {name for row in (*suite.rows, *suite.reported) for name in row.cells} | {"q19-ours"} == names


@pytest.mark.parametrize("query", [*QUERIES])
def test_every_question_is_a_pipeline_of_which_no_row_passes_through_spark(query: str, folder: Path) -> None:
    asked = ours.pipeline(query, str(folder))
    assert "in Spark" not in asked.explain()
    assert all(passes_no_row(scan) for scan in to_stages(asked.root).scans)


def test_a_run_is_judged_before_it_has_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is stood in for by one that answers with nothing; then by one that loses count."""
    cell = replace(bench.quick().groups[2].cells[0], log=TINY, warm_up=0)
    told: dict[str, Any] = {"timed": {"batches": [{"rows": 2_000, "started": 1.0, "ended": 2.0}] * 3}}

    def answers(module: str, home: Path) -> tuple[list[Sample], int]:
        assert json.loads((home / "order.json").read_text())["query"] == "q2"
        (home / "said").mkdir()
        pl.DataFrame({"auction": [1], "price": [1], "batch": [0]}).write_parquet(home / "said" / "0.parquet")
        (home / "run.json").write_text(json.dumps(told))
        return [Sample(1, 0, 1), Sample(2, 1, 1)], 0

    monkeypatch.setattr(bench, "started", answers)
    assert "rows are wrong" in bench.measure(cell, 0, tmp_path, check=True).failure
    assert bench.measure(cell, 1, tmp_path, check=False).failure == ""
    told["timed"]["counts"] = {"read": 9, "contributed": 8, "late": 0, "dead": 0, "filtered": 0}
    assert "lost count" in bench.measure(cell, 1, tmp_path, check=False).failure


def test_one_question_is_asked_in_turns_and_kept_apart_from_the_full_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def measure(cell: bench.Question, round_: int, work: Path, *, check: bool) -> Run:
        asked.append((cell.name, round_, check))
        return Run(cell.name, round_, events=100, cpu_seconds=2, wall_seconds=1)

    monkeypatch.setattr(bench, "measure", measure)
    monkeypatch.setattr(bench, "RESULTS", tmp_path / "nexmark.json")
    assert bench.main(Asked(only=("q5",), rounds=2, work=tmp_path)) == 0
    assert asked == [("q5-ours", 0, True), ("q5-native", 0, True), ("q5-native", 1, False), ("q5-ours", 1, False)]
    assert not (tmp_path / "nexmark.json").exists()


@pytest.mark.slow
def test_the_page_tells_of_nexmark() -> None:
    cells = [cell for group in bench.full().groups for cell in group.cells]
    runs = [Run(cell.name, 0, 2_500_000, cpu_seconds=number, wall_seconds=1) for number, cell in enumerate(cells, 1)]
    told = to_results(Measured(runs), bench.full(), "strandline bench nexmark", {})
    page = render.page(results(), of_nexmark=told)
    assert "| q0, pass-through: native on RocksDB | 2.00x |" in page
    assert "| q0-ours | 2,500,000 | 2,500,000 | 0.0 GB |  |" in page
    assert "q3 joins people with auctions" in page
    failed = to_results(Measured([Run("q0-ours", 0, failure="wrong")]), bench.full(), "strandline bench nexmark", {})
    assert "| q0-ours | failed |" in render.page(results(), of_nexmark=failed)
