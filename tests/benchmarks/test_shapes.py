"""Other shapes of streams, without their runs: the corpora, the judge beside the kernel, and the page."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import strandline as sl
from benchmarks import contestant, ours, render, shapes
from benchmarks.corpus import AGAIN, FLUSH_KEY, RATE, START, Batch, Corpus, batch_of, batches_of
from benchmarks.oracle import expect
from benchmarks.results import Measured, to_results
from benchmarks.runs import Run
from benchmarks.suite import TUMBLING
from benchmarks.workloads import DELAY, Contestant
from strandline.model.elements import Duration, Element, Timestamp
from strandline.model.panes import Pane
from strandline.model.steps import WindowedStep
from tests.benchmarks.sample import results
from tests.kernel.players import KernelPlayer

REPEATED = Corpus(keys=7, batches=4, per_batch=400, seed=3, late=False, repeated=True)


def identities(batch: Batch) -> list[tuple[int, int, int]]:
    return list(zip(batch.key.tolist(), batch.value.tolist(), batch.at.tolist(), strict=True))


def keep(batches: list[Batch], folder: Path) -> None:
    folder.mkdir()
    for number, batch in enumerate(batches):
        frame = pl.DataFrame({"key": batch.key, "value": batch.value, "at": batch.at})
        timed = frame.with_columns(pl.col("at").cast(pl.Datetime("ms", "UTC")))
        timed.write_parquet(folder / f"{number:05d}-0.parquet")


def to_cells(rows: list[tuple[int, int, int, int, int]], path: Path) -> None:
    names = ["key", "start_ms", "end_ms", "total", "plays"]
    pl.DataFrame(rows, names, orient="row").with_columns(sign=pl.lit(1)).write_parquet(path)


def test_in_a_storm_three_events_in_ten_are_late() -> None:
    for storm, share in ((False, 0.011), (True, 0.301)):
        batch = batch_of(Corpus(50, 1, 100_000, storm=storm), 0)
        behind = START + np.arange(100_000) * 1000 // RATE - batch.at
        assert np.mean(behind > DELAY * 1000) == pytest.approx(share, abs=0.005)


def test_one_event_in_five_is_an_earlier_one_and_none_of_them_is_late() -> None:
    corpus = Corpus(1_000_000, 2, 100_000, late=False, repeated=True)
    plain = Corpus(1_000_000, 2, 100_000, late=False)
    first, second = identities(batch_of(corpus, 0)), identities(batch_of(corpus, 1))
    known = {*identities(batch_of(plain, 0)), *identities(batch_of(plain, 1))}
    assert {*first, *second} <= known
    copies = len(second) - len({*second}) + len({*first} & {*second})
    # Of those that give way to another, some leave it the only one.
    assert 0.7 * AGAIN < copies / len(second) < AGAIN
    assert {*first} & {*second}
    arrivals = START + (100_000 + np.arange(100_000)) * 1000 // RATE
    assert (arrivals - batch_of(corpus, 1).at).max() < DELAY * 1000


def test_the_kernel_knows_copies_as_the_judge_does(tmp_path: Path) -> None:
    batches = list(batches_of(REPEATED))
    keep(batches, tmp_path / "corpus")
    step = WindowedStep(
        window=ours.kind_of(shapes.ONCE.window), aggregates=(("plays", sl.count()),), trigger=sl.after_count(1)
    )
    player = KernelPlayer(step, sl.bounded(seconds=DELAY), partitions=["0"])
    panes: list[Pane] = []
    late = 0
    for number, batch in enumerate(batches):
        said = player.feed([
            Element(Timestamp(at), f"{key},{value},{at}", {}, "0", number * 1_000 + place)
            for place, (key, value, at) in enumerate(identities(batch))
        ])  # fmt: skip
        panes += said.panes
        late += len(said.late)
    told = [tuple(map(int, str(pane.key).split(","))) for pane in panes]
    to_cells([(key, at, value, value, 1) for key, value, at in told], tmp_path / "panes.parquet")
    expected = expect(tmp_path / "corpus", shapes.ONCE, Contestant.OURS)
    assert expected.judge(str(tmp_path / "panes.parquet")).agrees
    assert expected.late == late > 0
    to_cells([(key, at, value, value, 1) for key, value, at in told + told[:1]], tmp_path / "panes.parquet")
    assert expected.judge(str(tmp_path / "panes.parquet")).wrong == 1


def test_of_what_is_told_with_every_change_the_last_must_be_right(tmp_path: Path) -> None:
    batches = list(batches_of(Corpus(keys=7, batches=4, per_batch=400, seed=3)))
    keep(batches, tmp_path / "corpus")
    step = WindowedStep(
        window=sl.everything(),
        aggregates=(("total", sl.sum("value")), ("plays", sl.count())),
        ttl=Duration(600_000),
        trigger=sl.repeatedly(sl.after_count(1)),
        accumulation=sl.accumulating,
    )
    player = KernelPlayer(step, sl.bounded(seconds=DELAY), partitions=["0"])
    (tmp_path / "panes").mkdir()
    for number, batch in enumerate(batches):
        said = player.feed([
            Element(Timestamp(at), key, {"value": value}, "0", number * 1_000 + place)
            for place, (key, value, at) in enumerate(identities(batch))
        ])  # fmt: skip
        rows = [(pane.key, 0, 0, pane.values["total"], pane.values["plays"]) for pane in said.panes]
        to_cells(rows, tmp_path / "panes" / f"{number}.parquet")
    expected = expect(tmp_path / "corpus", shapes.FOR_EVER, Contestant.OURS)
    assert expected.judge(f"{tmp_path}/panes/*.parquet").agrees
    assert (expected.cells, expected.late, expected.live) == (7, 0, 7)
    (tmp_path / "panes" / "3.parquet").unlink()
    assert expected.judge(f"{tmp_path}/panes/*.parquet").wrong == 7


def test_every_row_compares_cells_that_are_there_and_judged() -> None:
    for suite in (shapes.full(), shapes.quick()):
        cells = {cell.name: cell for group in suite.groups for cell in group.cells}
        assert {name for row in (*suite.rows, *suite.reported) for name in row.cells} == {*cells}
        assert all(cell.check for cell in cells.values())
        assert all(cell.corpus.batches > cell.warm_up for cell in cells.values())


def test_only_what_tells_changes_runs_in_update_mode() -> None:
    modes = [contestant.mode_of(workload) for workload in (TUMBLING, shapes.ONCE, shapes.FOR_EVER)]
    assert modes == ["append", "append", "update"]


def test_the_flush_is_no_event_of_them() -> None:
    assert identities(list(batches_of(REPEATED))[-1])[0][0] == FLUSH_KEY


def test_the_page_tells_of_them() -> None:
    runs = [Run("ours-once", 0, 100, 2, 1), Run("native-once", 0, 100, 1, 1)]
    told = to_results(Measured(runs), shapes.full(), "strandline bench shapes", {})
    page = render.page(results(), of_shapes=told)
    assert "| native dropDuplicates on RocksDB | 0.50x |" in page
    assert "native dropDuplicates on RocksDB: 0.50x, and the floor is 0.90x. This is not good enough." in page
