"""The long run, without it: what grows is seen, what only swings is not, and every event must be accounted for."""

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from benchmarks import render, render_soak, soak, soaking
from benchmarks.meter import Held, Looking, Sample
from benchmarks.runs import Beside
from benchmarks.turns import Asked
from strandline.errors import RunError
from strandline.model.counts import Counts
from tests.benchmarks.sample import results

MB = 2**20


def test_a_leak_is_told_by_its_slope_and_a_saw_is_flat() -> None:
    leak = soak.trend([(at, 100.0 + at / 10) for at in range(0, 601, 5)])
    assert leak.per_hour == pytest.approx(360)
    assert leak.rise == pytest.approx(40 / leak.middle)
    assert not leak.is_flat
    assert soak.trend([(at, 100.0 + at % 10) for at in range(0, 601, 5)]).is_flat
    assert soak.trend([(at, 900.0 - at) for at in range(0, 601, 5)]).is_flat  # what gets less is no leak
    assert soak.trend([(at, 0.0) for at in range(0, 601, 5)]).rise == 0


def test_what_a_jvm_takes_at_first_is_no_leak() -> None:
    assert soak.trend([(at, min(at, 150) + 100.0) for at in range(0, 601, 5)]).per_hour == pytest.approx(0)


def test_two_looks_make_no_slope() -> None:
    with pytest.raises(RunError, match="too little"):
        soak.trend([(0, 1.0), (5, 1.0)])


def delivered(due: int | None, read: int = 10) -> Any:
    panes = None if due is None else pl.DataFrame({"due": [due, due - 5]})
    step = SimpleNamespace(rows=3, size=70)
    counts = {"totals": Counts(read=read, contributed=read - 1, late=1)}
    return SimpleNamespace(output=SimpleNamespace(panes=panes), steps={0: step}, counts=counts)


def test_a_job_is_seen_every_five_seconds_and_the_longest_wait_is_kept() -> None:
    eye = soaking.Eye()
    eye.hear(delivered(9_900), now=10.0)
    eye.hear(delivered(10_500), now=12.0)
    eye.hear(delivered(12_800), now=13.0)
    eye.hear(delivered(12_800), now=14.0)  # nothing new
    eye.hear(delivered(None), now=15.5)
    assert [(each["at"], each["waited"], each["read"]) for each in eye.seen] == [(10.0, 0.1, 10), (15.5, 1.5, 50)]
    assert eye.seen[0] | {"rows": 3, "bytes": 70, "batches": 1} == eye.seen[0]
    assert (eye.known, eye.due, eye.batches) == (50, 12_800, 5)


def run(known: int) -> dict[str, Any]:
    seen = [
        {"at": 100.0 + at, "rows": 5, "bytes": 1_024, "read": 10 * at, "batches": at, "waited": 0.25}
        for at in range(0, 60, 5)
    ]
    return {"began": 100.0, "ended": 160.0, "sent": 600, "read": 600, "known": known, "seen": seen}


def samples() -> list[Sample]:
    return [Sample(95 + at / 10, at / 20, 500 * MB) for at in range(700)]


def looks() -> list[Held]:
    return [Held(float(at), {"java": 500 * MB}, files=400) for at in range(100, 161, 5)]


def test_memory_is_looked_at_as_often_and_lost_events_are_told() -> None:
    told = soak.soaked(run(known=600), samples(), 60, 10, looks())
    assert [round(each["second"]) for each in told["seen"]] == [*range(0, 61, 5)]
    assert told["memory"]["middle"] == 500 * MB
    assert told["state"]["is_flat"]
    assert told["cpu_seconds"] == 30.0
    assert "every one accounted for" in soak.to_text(told)
    assert "  memory       500.0 MB, from 500.0 to 500.0; +0.0 MB an hour (+0.0% while it was looked at): flat" in (
        soak.to_text(told)
    )
    short = soak.soaked(run(known=597), samples(), 1, 10, looks())
    assert short["lost"] == 3
    assert soak.to_text(short).count("too short to tell") == 4


def test_who_holds_the_memory_is_told_of_both_ends_of_what_counts() -> None:
    grows = [Held(float(at), {"java": 100 * MB + at * MB, "worker": 50 * MB}) for at in range(0, 300, 5)]
    late = [Held(float(at), {"java": 400 * MB, "worker": 50 * MB, "late": 7 * MB}) for at in range(300, 601, 5)]
    brief = [Held(230.0, {"java": 330 * MB, "worker": 50 * MB, "brief": 9 * MB})]
    found = soak.holders([*grows, *brief, *late], 0, 600)
    assert found == {"java": [330 * MB, 400 * MB], "late": [0, 7 * MB], "worker": [50 * MB, 50 * MB]}


def test_who_holds_the_memory_is_in_the_text_and_on_the_page() -> None:
    grows = [Held(float(at), {"java": (230 + at) * MB}) for at in range(100, 161, 2)]
    told = soak.soaked(run(known=600), samples(), 60, 10, grows)
    assert told["held"] == {"java": [353 * MB, 387 * MB]}
    assert "    java                353.0 MB after the first third, 387.0 MB at the end" in soak.to_text(told)
    assert "| `java` | 353 MB | 387 MB |" in render_soak.soak(results() | {"soak": told})


def test_sockets_that_are_opened_and_never_closed_are_a_leak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leaks = [Held(float(at), {"java": MB}, files=400 + 30 * (at - 100)) for at in range(100, 161, 2)]
    told = soak.soaked(run(known=600), samples(), 60, 10, leaks)
    assert "  files      1,600.0 open, from 1,000.0 to 2,200.0; +108,000.0 open an hour" in soak.to_text(told)
    row = "| open files and sockets | 1,600 | 1,000 to 2,200 | +108,000.0 | +75.0% |"
    assert row in render_soak.soak(results() | {"soak": told})
    monkeypatch.setattr(soak, "measure", lambda *_: told)
    monkeypatch.setattr(soak, "RESULTS", tmp_path / "soak.json")
    assert soak.main(Asked(work=tmp_path), 60, 10) == 1


def test_files_that_were_read_long_ago_are_taken_away(tmp_path: Path) -> None:
    for name, age in (("old", 301), ("new", 299)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (10_000 - age, 10_000 - age))
    soaking.tidy(tmp_path, now=10_000)
    assert [each.name for each in tmp_path.iterdir()] == ["new"]


def test_all_events_of_the_schedule_are_expected() -> None:
    assert soaking.events_of(120, 10_000) == 10 * 1_000 + 120 * 10_000


def test_a_run_is_started_with_patience_kept_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ends, known = [0, 0, 3], [600, 500, 0]

    def started(module: str, home: Path, beside: Beside, patience: float) -> tuple[list[Sample], int]:
        watch = beside(os.getpid())
        assert isinstance(watch, Looking)
        watch.looks.extend(looks())
        assert module == "benchmarks.soaking"
        assert patience > 60 * json.loads((home / "order.json").read_text())["seconds"] / 60
        (home / "run.json").write_text(json.dumps(run(known.pop(0))))
        (home / "output.txt").write_text("no room\n")
        return samples(), ends.pop(0)

    monkeypatch.setattr(soak, "started", started)
    monkeypatch.setattr(soak, "RESULTS", tmp_path / "soak.json")
    assert soak.main(Asked(work=tmp_path), 60, 10) == 0
    told = json.loads((tmp_path / "soak.json").read_text())
    assert told["command"] == "strandline bench soak --minutes 60"
    page = render.page(results(), of_soak=told)
    assert "| resident memory | 500 MB | 500 to 500 MB | +0.0 MB | +0.0% |" in page
    assert not (tmp_path / "runs").exists()
    assert soak.main(Asked(quick=True, work=tmp_path)) == 1
    assert "100 EVENTS LOST" in capsys.readouterr().out
    with pytest.raises(RunError, match="the run failed") as failed:
        soak.main(Asked(quick=True, work=tmp_path))
    assert "no room" in failed.value.detail
