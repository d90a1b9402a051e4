"""The benchmark of bounded input, without its runs: who is compared, and by which rule each is judged."""

import os
from pathlib import Path

import pytest

from benchmarks import bounded, oracle, render
from benchmarks.corpus import Corpus, written
from benchmarks.feeds import Folder
from benchmarks.metal import METAL, checked, timed
from benchmarks.results import Measured, to_results
from benchmarks.runs import Run
from benchmarks.suite import TUMBLING
from benchmarks.workloads import Contestant
from tests.benchmarks.sample import results


def test_every_row_compares_cells_that_are_measured_over_the_same_events() -> None:
    for suite in (bounded.full(), bounded.quick()):
        (group,) = suite.groups
        assert {name for row in (*suite.rows, *suite.reported) for name in row.cells} == {
            cell.name for cell in group.cells
        }
        assert len({cell.corpus for cell in group.cells}) == 1
        assert not group.cells[0].corpus.late
    assert bounded.full().groups[0].cells[0].corpus.batches * 1_000_000 == 10_000_000


def test_without_late_events_all_are_held_to_the_same_answer(tmp_path: Path) -> None:
    folder, _ = written(Corpus(keys=5, batches=3, per_batch=2_000, late=False), tmp_path)
    who = (Contestant.OURS, Contestant.AT_ONCE, Contestant.PLAIN, *METAL)
    found = [oracle.expect(folder, TUMBLING, contestant) for contestant in who]
    rows = [each.connection.execute("SELECT * FROM expected ORDER BY ALL").fetchall() for each in found]
    assert rows[0] != []
    assert all(each == rows[0] for each in rows)
    assert {each.late for each in found} == {0}


@pytest.mark.parametrize("contestant", METAL)
def test_on_the_metal_every_window_is_what_the_judge_says(contestant: Contestant, tmp_path: Path) -> None:
    folder, _ = written(Corpus(keys=50, batches=3, per_batch=2_000, late=False), tmp_path / "corpora")
    feed, kept = Folder(str(folder)), tmp_path / "kept"
    kept.mkdir()
    (batch,) = checked(contestant, TUMBLING, feed, kept)["batches"]
    assert batch["rows"] >= 6_000
    verdict = oracle.expect(folder, TUMBLING, contestant).judge(f"{kept}/*.parquet")
    assert verdict.agrees
    (several,) = timed(contestant, TUMBLING, feed, least=0.05)["batches"]
    assert several["rows"] % batch["rows"] == 0


@pytest.mark.slow
def test_programs_that_share_nothing_read_everything_on_each_core(tmp_path: Path) -> None:
    folder, _ = written(Corpus(keys=50, batches=2, per_batch=2_000, late=False), tmp_path)
    told = timed(Contestant.POLARS_EACH, TUMBLING, Folder(str(folder)), least=0.2)
    (batch,) = told["batches"]
    assert batch["rows"] % 4_001 == 0
    assert batch["rows"] >= 4_001 * len(os.sched_getaffinity(0))
    assert 0.2 <= batch["ended"] - batch["started"] <= told["ended"] - told["started"]


def test_the_page_tells_of_bounded_input() -> None:
    cells = bounded.full().groups[0].cells
    mine = [Run(cell.name, 0, 10_000_000, cpu_seconds=number, wall_seconds=1) for number, cell in enumerate(cells, 1)]
    told = to_results(Measured(mine), bounded.full(), "strandline bench bounded", {})
    assert [(row["name"], row["ratio"], row["reached"]) for row in told["rows"]] == [
        ("stream", 2.0, "goal"),
        ("plain", 3.0, "goal"),
    ]
    page = render.page(results(), of_bounded=told)
    assert "| at-once | 10,000,000 | 10,000,000 | 0.0 GB |  |" in page
    failed = to_results(Measured([Run("plain", 0, failure="wrong")]), bounded.full(), "strandline bench bounded", {})
    assert "| plain | failed |" in render.page(results(), of_bounded=failed)
