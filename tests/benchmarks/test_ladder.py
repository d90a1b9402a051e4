"""The ladder of latency, without its runs: from when an event was due, per timing; rungs chosen, kept and told."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from benchmarks import ladder, latency, render
from benchmarks.ladder import RUNGS, climb
from benchmarks.latency import Setting
from benchmarks.render_latency import aims
from benchmarks.suite import Latency
from benchmarks.turns import Asked
from strandline.errors import PlanError
from tests.benchmarks.sample import results

END = 20_000
"""Where a window ends; it is complete 5 s later."""


def test_a_pane_on_time_is_waited_for_from_the_event_that_completes_its_window() -> None:
    heard = [(25.2, [24_950], []), (25.6, [25_050, 25_150], [END]), (36.0, [35_950], [END + 10_000])]
    told = {"began": 10.0, "heard": heard}
    assert latency.on_time(told, warm_up=5) == [25_600 - 25_050, 36_000 - 35_950]
    assert latency.on_time(told, warm_up=20) == [50.0]
    assert latency.on_time({"began": 0, "heard": [(25.2, [24_950], [END])]}, warm_up=0) == []


def test_files_fall_as_large_as_the_rate_wants_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[tuple[str, int]] = []
    monkeypatch.setattr(latency, "drop", lambda folder, name, due, random, count: dropped.append((name, count)))
    monkeypatch.setattr(latency.time, "sleep", lambda seconds: None)  # type: ignore[attr-defined]
    latency.write(tmp_path, 1, rate=50_000, every=0.5)
    latency.write(tmp_path, 0.1, rate=1)
    assert dropped == [("000000.parquet", 25_000), ("000001.parquet", 25_000), ("000000.parquet", 1)]


def test_each_rung_changes_one_thing_of_the_base() -> None:
    base = RUNGS[0]
    for rung in RUNGS[1:]:
        mine, usual = (
            (each.contestant, *(getattr(each.setting, field.name) for field in fields(Setting)))
            for each in (rung, base)
        )
        assert sum(one != other for one, other in zip(mine, usual, strict=True)) == 1, rung.name


def test_rungs_are_chosen_by_name() -> None:
    assert [rung.name for rung in ladder.chosen((), quick=True)] == [r.name for r in RUNGS if r.name in ladder.AT_FIRST]
    assert ladder.chosen((), quick=False) == [*RUNGS]
    assert [rung.name for rung in ladder.chosen(("rate-1k",), quick=True)] == ["rate-1k"]
    with pytest.raises(PlanError, match="no rung 'higher'"):
        ladder.chosen(("higher",), quick=False)


def test_a_run_is_summed_up_by_timing_or_told_as_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rung = ladder.Rung("rate-1k", "1 k events/s", Setting(rate=1_000))
    runs: list[tuple[list[Any], int]] = [([(25.6, [25_050, 25_150], [END])], 0), ([], 0), ([], 3)]

    def started(module: str, home: Path) -> tuple[list[Any], int]:
        assert module == "benchmarks.latency"
        assert json.loads((home / "order.json").read_text())["setting"]["rate"] == 1_000
        heard, code = runs.pop(0)
        (home / "run.json").write_text(json.dumps({"began": 0, "heard": heard}))
        (home / "output.txt").write_text("no room\n")
        return [], code

    monkeypatch.setattr(ladder, "started", started)
    told = climb(rung, Latency(12, 4), tmp_path)
    assert told["early"] == {"p50": 550.0, "p95": 550.0, "p99": 550.0, "max": 550.0, "panes": 2}
    assert told["on_time"]["p50"] == 550.0
    assert climb(rung, Latency(12, 4), tmp_path)["failure"] == "not a single pane was seen after the warm-up"
    assert "no room" in climb(rung, Latency(12, 4), tmp_path)["failure"]


def test_rungs_are_climbed_up_and_down_kept_and_told_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    climbed: list[str] = []

    def one(rung: ladder.Rung, length: Latency, work: Path) -> dict[str, Any]:
        climbed.append(rung.name)
        told: dict[str, Any] = {"rung": rung.name, "title": rung.title}
        if rung.name == "native":
            return told | {"failure": "no room"}
        figures = ladder.summed([100.0 * len(climbed)] * 3)
        return told | {"early": figures, "on_time": figures}

    monkeypatch.setattr(ladder, "climb", one)
    monkeypatch.setattr(ladder, "RESULTS", tmp_path / "latency.json")
    asked = Asked(only=("base", "native"), rounds=2, work=tmp_path)
    assert ladder.main(asked) == ladder.main(asked) == 1
    assert climbed == ["base", "native", "native", "base"]
    said = capsys.readouterr().out
    assert "base           round 1: early p50 100, p95 100, p99 100 ms; on time p50 100" in said
    assert "FAILED, no room" in said
    (kept,) = tmp_path.glob("runs/*/latency.json")
    page = render.page(results(), of_latency=json.loads(kept.read_text()))
    assert f"| {RUNGS[0].title} | 250 ms | 250 ms | 250 ms | 250 ms | 250 ms | 250 ms | 3 |" in page
    assert "failed: no room; no room" in page
    assert not (tmp_path / "latency.json").exists()


def rung(name: str, p50: float, p99: float) -> dict[str, Any]:
    return {"rung": name, "title": f"the {name}", "early": {"p50": p50, "p99": p99}}


def test_the_page_says_of_every_aim_whether_it_was_reached() -> None:
    said = aims([rung("base", 190, 610), rung("native", 150, 500)])
    assert "| p50 | 190 ms | 150 ms | ≤ 350 ms | ≤ 200 ms | goal reached |" in said
    assert "| p99 | 610 ms | 500 ms | ≤ 600 ms | ≤ 400 ms | **below the floor** |" in said
    assert "| p50 over native | +40 ms |  | ≤ +50 ms | ≤ +50 ms | goal reached |" in said
    assert "| p99 over native | +22 % |  | ≤ +15 % | ≤ +15 % | **below the floor** |" in said


def test_the_page_names_the_lowest_rung_at_the_rate_of_the_base() -> None:
    rungs = [rung("base", 190, 610), rung("native", 100, 200), rung("partitions-4", 170, 400), rung("rate-1k", 90, 95)]
    assert "Ours with the lowest p50 at this rate: the partitions-4, p50 170 ms and p99 400 ms." in aims(rungs)


def test_without_the_native_run_nothing_is_said_of_aims() -> None:
    assert aims([rung("base", 190, 610)]) == ""
