"""From runs to rows, and from rows to the page."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks import render
from benchmarks.results import Measured, reached, shown, to_results, to_table
from benchmarks.suite import REPORTED, ROWS, full, quick
from tests.benchmarks.sample import results, runs, waits

ROOT = Path(__file__).resolve().parents[2]


def test_every_row_compares_cells_that_are_measured() -> None:
    for suite in (full(), quick()):
        names = [cell.name for group in suite.groups for cell in group.cells]
        assert len(names) == len(set(names))
        assert {name for row in (*ROWS, *REPORTED) for name in row.cells} <= set(names)


def test_a_row_tells_ratio_floor_goal_and_spread() -> None:
    row = results()["rows"][0]
    assert row["name"] == "tumbling-rocksdb"
    assert row["against"] == "native append on RocksDB, tumbling, 100 k keys"
    assert (row["floor"], row["goal"], row["lower_is_better"]) == (1.3, 2.0, False)
    assert row["ratio"] == pytest.approx(19.1 / 20.1, abs=0.001)
    assert row["spread"]["low"] <= row["ratio"] <= row["spread"]["high"]
    assert row["reached"] == "below"


def test_the_cost_of_more_keys_is_better_when_lower() -> None:
    rows = {row["name"]: row for row in results()["rows"]}
    cells = [cell.name for group in full().groups for cell in group.cells]
    few, many = (20 - cells.index(name) + 0.1 for name in ("ours-1k", "ours-1m"))
    assert rows["keys-1k-1m"]["ratio"] == pytest.approx(many / few, abs=0.001)
    assert rows["keys-1k-1m"]["reached"] == "goal"


def test_latency_is_a_difference_in_milliseconds() -> None:
    row = results()["rows"][-1]
    assert (row["name"], row["unit"], row["ratio"], row["reached"]) == ("latency", "ms", 60, "floor")


def test_what_failed_has_no_number_and_says_why() -> None:
    told = results(native_rocksdb="3 of 10 windows are wrong")
    rows = {row["name"]: row for row in told["rows"]}
    assert rows["tumbling-rocksdb"]["ratio"] is None
    assert "3 of 10 windows are wrong" in rows["tumbling-rocksdb"]["failure"]
    assert rows["tumbling-memory"]["ratio"] is not None
    assert "3 of 10 windows are wrong" in to_table(told)
    assert "no number, because a run failed" in render.page(told)


def test_what_was_not_asked_for_is_not_measured() -> None:
    told = to_results(Measured([], []), full(), "strandline bench windows --only latency", {})
    assert {row["reached"] for row in told["rows"]} == {"not measured"}


@pytest.mark.parametrize(
    ("ratio", "lower", "standing"),
    [(2.0, False, "goal"), (1.3, False, "floor"), (1.2, False, "below"), (1.4, True, "goal"), (2.1, True, "below")],
)
def test_where_a_ratio_stands(ratio: float, lower: bool, standing: str) -> None:
    floor, goal = (2.0, 1.5) if lower else (1.3, 2.0)
    assert reached(ratio, floor, goal, lower=lower) == standing


def test_figures_are_shown_with_their_unit() -> None:
    assert [shown(1.234, "x"), shown(45.6, "x"), shown(49.6, "ms"), shown(None, "x")] == ["1.23x", "46x", "+50 ms", "–"]


def test_the_page_holds_every_row_and_says_where_the_goal_is_missed() -> None:
    told = results()
    page = render.page(told)
    for row in (*told["rows"], *told["reported"]):
        assert f"| {row['against']} |" in page
    assert "This is not good enough." in page
    assert "holds the floor of +150 ms; the goal is at most +50 ms" in page
    assert told["commit"] in page
    assert "100 bytes a key and open window" in page


@pytest.mark.slow
def test_pictures_are_well_formed_and_the_same_every_time() -> None:
    for name, text in render.pages(results()).items():
        if name.suffix == ".svg":
            assert ET.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    assert render.pages(results()) == render.pages(results())


def test_a_page_can_be_made_of_a_run_with_gaps() -> None:
    only_one = [run for run in runs() if run.cell == "ours"]
    for text in render.pages(to_results(Measured(only_one, waits()[:1]), full(), "…", {})).values():
        assert "None" not in text


def test_the_page_is_checked_against_the_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(render, "ROOT", tmp_path)
    monkeypatch.setattr(render, "RESULTS", tmp_path / "windows.json")
    (tmp_path / "windows.json").write_text(json.dumps(results()))
    assert render.main(["--check"]) == 1
    assert render.main([]) == 0
    assert render.main(["--check"]) == 0
    (tmp_path / render.PAGE).write_text("better figures\n")
    assert render.main(["--check"]) == 1
    assert "performance.md is not what windows.json says" in capsys.readouterr().out


def test_the_page_in_the_repository_is_what_the_figures_say() -> None:
    told = ROOT / "benchmarks" / "results" / "windows.json"
    assert render.main(["--check"]) == 0 if told.exists() else not (ROOT / render.PAGE).exists()


def test_the_readme_says_of_nexmark_what_was_measured() -> None:
    rows = json.loads((ROOT / "benchmarks" / "results" / "nexmark.json").read_text())["rows"]
    ratios = [row["ratio"] for row in rows]
    said = " ".join((ROOT / "README.md").read_text().split())
    assert f"The {len(rows)} questions of Nexmark" in said
    assert f"{min(ratios):.2f} to {max(ratios):.2f} times the events of Spark by hand" in said


def test_the_readme_says_of_peers_what_was_measured() -> None:
    rows = json.loads((ROOT / "benchmarks" / "results" / "peers.json").read_text())["rows"]
    found = {row["name"]: shown(row["ratio"], "").removesuffix("x") for row in rows}
    said = " ".join((ROOT / "README.md").read_text().split())
    for name, title in (("flink-sql", "what Flink SQL"), ("kafka-streams", "Kafka Streams"), ("pathway", "Pathway")):
        assert f"{found[name]} times {title}" in said
    assert f"{found['bytewax']} times Bytewax" in said
