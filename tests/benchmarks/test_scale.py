"""The benchmark of scale, without its runs: one thing grows at a time, and a run is given the room it is told."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import contestant, feeds, render, scale
from benchmarks.feeds import Folder
from benchmarks.results import Measured, to_results
from benchmarks.runs import Run
from benchmarks.sessions import Room
from benchmarks.suite import TUMBLING
from benchmarks.workloads import to_json
from tests.benchmarks.sample import results

ROOT = Path(__file__).resolve().parents[2]


def test_every_row_compares_two_cells_that_differ_in_one_thing() -> None:
    for suite in (scale.full(), scale.quick()):
        cells = {cell.name: cell for group in suite.groups for cell in group.cells}
        assert {name for row in (*suite.rows, *suite.reported) for name in row.cells} == {*cells}
        for row in (*suite.rows, *suite.reported):
            one, other = cells[row.cell], cells[row.peer]
            if row.share_of:
                assert [cells[name].cores for name in row.share_of] == [one.cores, other.cores]
            traits = [
                (cell.corpus.keys, cell.corpus.batches, cell.workload, cell.cores, cell.partitions)
                for cell in (one, other)
            ]
            assert sum(mine != theirs for mine, theirs in zip(*traits, strict=True)) == 1, row.name
            assert one.check
            assert other.check


def test_ten_times_the_events_are_ten_times_the_batches_that_count() -> None:
    cells = {cell.name: cell for group in scale.full().groups for cell in group.cells}
    counted = [cells[name].corpus.batches - cells[name].warm_up for name in ("base", "events-10x")]
    assert counted[1] == 10 * counted[0]


@pytest.mark.slow
def test_a_run_is_told_its_room_and_keeps_to_it(tmp_path: Path) -> None:
    order = {
        "contestant": "ours",
        "workload": to_json(TUMBLING),
        "feed": feeds.to_json(Folder("nowhere")),
        "check": None,
        "warm_up": 0,
    }
    path = tmp_path / "order.json"
    path.write_text(json.dumps(order))
    assert contestant.read_order(path).room == Room(2, None)
    path.write_text(json.dumps({**order, "room": {"cores": 1, "partitions": 8}}))
    room = contestant.read_order(path).room
    assert room.settings() == {"spark.master": "local[1,4]", "spark.sql.shuffle.partitions": "8"}
    assert Room(2).settings()["spark.sql.shuffle.partitions"] == "2"
    program = "import os; from benchmarks.sessions import Room; Room(1).enter(); print(len(os.sched_getaffinity(0)))"
    paths = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    said = subprocess.run([sys.executable, "-c", program], env=os.environ | paths, capture_output=True, check=True)
    assert said.stdout == b"1\n"


def test_cores_are_compared_by_the_clock_and_all_else_by_cpu_time() -> None:
    runs = [Run("base", 0, 100, cpu_seconds=2, wall_seconds=1), Run("cores-1", 0, 100, cpu_seconds=2, wall_seconds=1.2)]
    runs += [Run("machine", 0, 90, 2, wall_seconds=1), Run("machine-cores-1", 0, 90, 2, wall_seconds=1.5)]
    runs.append(Run("partitions-8", 0, 100, cpu_seconds=3, wall_seconds=9))
    told = to_results(Measured(runs), scale.full(), "strandline bench scale", {})
    ratios = {row["name"]: (row["ratio"], row["reached"]) for row in told["rows"] if row["ratio"] is not None}
    assert ratios == {"cores": (0.8, "floor"), "partitions": (1.5, "floor")}
    page = render.page(results(), of_scale=told)
    assert "| events a second on two cores, against one | 1.20x |" in page
    assert "an event's cost, 2 → 8 partitions: 1.50x holds the floor of 2.00x; the goal is at most 1.30x" in page
