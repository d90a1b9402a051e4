"""Deduplication benchmark without Spark: the stream, the judge against the kernel, and the page."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from benchmarks import render
from benchmarks.corpus import put
from benchmarks.dedupe import bench, contestant, judge
from benchmarks.dedupe.events import REACH, SPAN, START, Resent, batch_of, written
from benchmarks.results import Measured, to_results
from benchmarks.runs import Run
from benchmarks.workloads import Contestant
from strandline.execution.batch import Batch
from strandline.execution.block_addresses import place
from strandline.execution.gather_output import gather
from strandline.execution.keyed_step import play_group
from strandline.execution.prepare import SourceName, prepare_scan
from strandline.kernel.blocks.block import pack, unpack
from strandline.plan.compile import to_stages
from tests.benchmarks.sample import results

TINY = Resent(batches=9, per_batch=500, rate=50)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(TINY, tmp_path_factory.mktemp("stream"))[0]


def emitted(stream: Resent) -> Iterator[pl.DataFrame]:
    """Run our pipeline without Spark: what each batch emits."""
    stages = to_stages(contestant.pipeline("nowhere", stream.columns).root, 2)
    scan = replace(stages.scans[0], source=SourceName("nowhere"))  # type: ignore[arg-type]
    held: list[dict[str, bytes]] = [{}, {}]
    for number in range(stream.batches):
        frame, batch = pl.DataFrame(batch_of(stream, number)), Batch(START + number, {})
        arrived: dict[int, list[bytes]] = {}
        for to, block in prepare_scan(frame, scan, stages.by_number, None, batch, 0, alone=True):
            arrived.setdefault(to, []).append(pack(block))
        sent = []
        for step, group in ((0, 0), (0, 1)):
            (data,) = [blocks for to, blocks in arrived.items() if place(to) == (step, group)]
            found = [unpack(each, "test") for each in data]
            writes, out = play_group(stages.by_number[step], group, held[group], found, stages.by_number, batch)
            held[group] = {at: kept for at, kept in {**held[group], **writes}.items() if kept is not None}
            sent += out
        rows = gather(block for _, block in sent).frames["out:0"]
        yield rows.select(name for name in rows.columns if not name.startswith("@"))


def test_one_event_in_seven_is_a_copy_of_an_event_at_most_so_many_seconds_before() -> None:
    stream = Resent(batches=6, per_batch=20_000, rate=2_000)
    rows = pl.concat([pl.DataFrame(batch_of(stream, number)) for number in range(6)]).with_row_index("place")
    copies = rows.height - rows["id"].n_unique()
    assert copies / rows.height == pytest.approx(0.13, abs=0.02)
    apart = rows.group_by("id").agg(times=pl.col("at").n_unique(), apart=pl.col("place").max() - pl.col("place").min())
    assert apart["times"].max() == 1
    assert (REACH - 1) * 2_000 < apart["apart"].to_numpy().max() < (REACH + 1) * 2_000


def test_batches_are_made_from_their_numbers_alone() -> None:
    assert batch_of(TINY, 3).equals(batch_of(Resent(20, 500, 50), 3))
    text = batch_of(Resent(9, 500, 50, text=True), 3)
    assert {len(each) for each in text["id"].to_pylist()} == {32}
    assert text.drop_columns("id").equals(batch_of(TINY, 3).drop_columns("id"))
    assert len(set(text["id"].to_pylist())) == len(set(batch_of(TINY, 3)["id"].to_pylist()))


def test_the_kernel_emits_the_rows_that_the_judge_expects(folder: Path, tmp_path: Path) -> None:
    expected = judge.expect(folder)
    rows = pl.concat([*emitted(TINY)])
    assert 0 < rows.height == expected.rows < expected.events == 4_500
    assert 0 < expected.live < expected.rows
    rows.write_parquet(tmp_path / "0.parquet")
    assert expected.judge(f"{tmp_path}/*.parquet").agrees


@pytest.mark.parametrize(
    ("change", "example"),
    [
        (lambda rows: rows.slice(1), "0 times, not 1"),
        (lambda rows: pl.concat([rows, rows.slice(5, 1)]), "2 times, not 1"),
        (lambda rows: rows.with_columns(id=pl.when(pl.int_range(pl.len()) == 0).then(0).otherwise("id")), ""),
    ],
    ids=["missing", "twice", "another id"],
)
def test_the_judge_finds_wrong_rows(folder: Path, tmp_path: Path, change: object, example: str) -> None:
    rows = change(pl.read_parquet(folder / "*.parquet").unique())  # type: ignore[operator]
    rows.write_parquet(tmp_path / "0.parquet")
    verdict = judge.expect(folder).judge(f"{tmp_path}/*.parquet")
    assert verdict.wrong == (1 if example else 2)
    assert example in verdict.example


@pytest.mark.parametrize(("seconds", "amount"), [(SPAN + 1, 0), (0, 1)], ids=["late", "a copy that differs"])
def test_the_judge_refuses_a_stream_whose_answer_is_ambiguous(tmp_path: Path, seconds: int, amount: int) -> None:
    at = np.array([START + 100_000, START + 100_000 - seconds * 1000]) * 1000
    rows = pa.table({
        "id": [1, 1 + seconds], "at": pa.array(at, pa.timestamp("us", tz="UTC")), "account": [1, 1],
        "amount": [0, amount], "method": ["card", "card"],
    })  # fmt: skip
    put(tmp_path, 0, rows.slice(0, 1))
    put(tmp_path, 1, rows.slice(1, 1))
    with pytest.raises(ValueError, match="late events, or copies that differ"):
        judge.expect(tmp_path)


def test_every_row_compares_cells_that_are_measured_and_checked() -> None:
    for suite in (bench.full(), bench.quick()):
        cells = {cell.name: cell for group in suite.groups for cell in group.cells}
        assert {name for row in (*suite.rows, *suite.reported) for name in row.cells} == {*cells}
        assert all(cell.check and cell.stream.batches > max(cell.warm_up, bench.CHECKED) for cell in cells.values())
        per_batch = {cell.stream.per_batch / cell.stream.rate for cell in cells.values()}
        assert per_batch == {10}
        assert bench.CHECKED * 10 > 2 * SPAN


def test_an_order_travels_to_the_process_that_runs_it(tmp_path: Path) -> None:
    cell = bench.quick().groups[0].cells[1]
    (tmp_path / "order.json").write_text(json.dumps(bench.order_of(cell, Path("/there"))))
    order = contestant.read_order(tmp_path / "order.json")
    assert order == contestant.Order(Contestant.NATIVE_ROCKSDB, cell.stream.columns, "/there", None, tmp_path, 0)


def test_a_run_that_does_not_account_for_every_element_has_no_number() -> None:
    counts = {"read": 10, "again": 0, "contributed": 8, "filtered": 2, "late": 0, "dead": 0}
    assert bench.miscounted({"counts": counts}) == ""
    assert bench.miscounted({}) == ""
    assert "lost count" in bench.miscounted({"counts": counts | {"filtered": 1}})
    assert "lost count" in bench.miscounted({"counts": counts | {"contributed": 7, "late": 1}})


def test_a_checked_run_with_a_wrong_number_of_duplicates_fails(folder: Path, tmp_path: Path) -> None:
    expected = judge.expect(folder)
    batches = [{"rows": 500, "state": [{"bytes": 1_000}, {"bytes": None}]}]
    counts = {"filtered": expected.events - expected.rows}
    output = str(tmp_path / "0.parquet")
    pl.read_parquet(folder / "*.parquet").unique().write_parquet(output)
    good = bench.judged(Run("ours", 0), folder, {"batches": batches, "counts": counts}, output)
    assert (good.failure, good.checked["state_bytes"], good.checked["wrong"]) == ("", 1_000, 0)
    bad = bench.judged(Run("ours", 0), folder, {"batches": batches, "counts": {"filtered": 3}}, output)
    assert "3 elements were counted as duplicates" in bad.failure


def test_the_page_has_the_figures() -> None:
    runs = [Run("ours", 0, 100, 1, 1), Run("native-rocksdb", 0, 100, 4, 1), Run("native-memory", 0, 100, 2, 1)]
    told = to_results(Measured(runs), bench.full(), "strandline bench dedupe", {})
    page = render.page(results(), of_dedupe=told)
    assert "| [Deduplication](#deduplication) | 1 | 0 | 1 | 0 |" in page
    assert "| dropDuplicatesWithinWatermark on RocksDB, 2 M live ids | 4.00x |" in page
