"""The command's own part: what is run, in which order, and what is not run again."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import latency, runs, windows
from benchmarks.meter import Sample
from benchmarks.runs import Run, weighed
from benchmarks.suite import AT_FIRST, Cell, full, quick
from benchmarks.turns import Asked, chosen_cells, work_folder
from benchmarks.windows import main
from strandline.errors import PlanError

ROOT = Path(__file__).resolve().parents[2]
CELL = full().groups[0].cells[0]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, bool]]:
    """Runs that take no time, and what was asked of them."""
    asked: list[tuple[str, int, bool]] = []

    def measure(cell: Cell, round_: int, work: Path, *, check: bool) -> Run:
        asked.append((cell.name, round_, check))
        return Run(cell.name, round_, events=100, cpu_seconds=2, wall_seconds=1)

    monkeypatch.setattr(windows, "measure", measure)
    return asked


def test_cells_run_in_turns_back_and_forth_and_are_checked_the_first_time(
    measured: list[tuple[str, int, bool]], tmp_path: Path
) -> None:
    assert main(Asked(only=("sliding",), rounds=2, work=tmp_path)) == 0
    assert measured == [
        ("ours-sliding", 0, True),
        ("native-sliding", 0, True),
        ("native-sliding", 1, False),
        ("ours-sliding", 1, False),
    ]


@pytest.mark.parametrize(
    ("seconds", "rounds"),
    [((2.0, 2.1, 2.0, 2.0), 2), ((2.0, 2.75, 2.0, 2.0), 3), ((2.0, 4.0, 9.0, 2.0), 4)],
    ids=["steady", "steady with one more", "never steady"],
)
def test_a_ratio_that_differs_from_round_to_round_is_measured_again_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seconds: Sequence[float], rounds: int
) -> None:
    def measure(cell: Cell, round_: int, work: Path, *, check: bool) -> Run:
        return Run(cell.name, round_, 100, seconds[round_] if cell.name == "ours-sliding" else 2.0, 1)

    monkeypatch.setattr(windows, "measure", measure)
    main(Asked(only=("sliding",), rounds=2, work=tmp_path))
    for cell in ("ours-sliding", "native-sliding"):
        assert len([*tmp_path.glob(f"runs/*/{cell}-*.json")]) == rounds


def test_a_quick_run_asks_a_row_of_each_kind_and_any_other_by_its_name() -> None:
    every = {row.name for row in (*full().rows, *full().reported)}
    assert {row.name for row in quick().rows} == {*AT_FIRST} < every
    assert {row.name for row in (*quick().rows, *quick().reported)} == every
    asked = {"ours", "native-rocksdb", "by-key-100k", "ours-all-panes", "ours-sliding", "native-sliding"}
    assert chosen_cells(quick(), Asked(quick=True)) == asked
    assert chosen_cells(quick(), Asked(quick=True, only=("keys-1k-1m",))) == {"ours-1k", "ours-1m"}


def test_a_row_that_is_called_as_its_peer_is_has_both_of_its_sides() -> None:
    assert chosen_cells(full(), Asked(only=("pass-through",))) == {"ours", "pass-through"}
    assert chosen_cells(full(), Asked(only=("ours-1m",))) == {"ours-1m"}


@pytest.mark.slow
def test_an_interrupted_benchmark_goes_on_where_it_was(measured: list[tuple[str, int, bool]], tmp_path: Path) -> None:
    main(Asked(only=("ours-sliding",), rounds=1, work=tmp_path))
    main(Asked(only=("sliding",), rounds=1, work=tmp_path))
    assert [name for name, *_ in measured] == ["ours-sliding", "native-sliding"]
    main(Asked(only=("sliding",), rounds=1, work=tmp_path, again=True))
    assert [name for name, *_ in measured[2:]] == ["ours-sliding", "native-sliding"]


def test_a_part_is_kept_beside_the_runs_and_never_as_the_full_result(
    measured: list[tuple[str, int, bool]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(windows, "RESULTS", tmp_path / "windows.json")
    main(Asked(only=("sliding",), rounds=1, work=tmp_path))
    assert not (tmp_path / "windows.json").exists()
    (kept,) = tmp_path.glob("runs/*/windows.json")
    rows = {row["name"]: row for row in json.loads(kept.read_text())["rows"]}
    assert rows["sliding"]["ratio"] == 1.0
    said = capsys.readouterr().out
    assert "native, sliding with 60 overlaps" in said
    assert "so small a run" not in said
    main(Asked(quick=True, only=("sliding",), work=tmp_path))
    assert "so small a run tells whether answers are right" in capsys.readouterr().out


def test_a_failed_run_makes_the_command_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "measure", lambda cell, round_, work, check: Run(cell.name, round_, failure="wrong"))
    assert main(Asked(only=("sliding",), rounds=1, work=tmp_path)) == 1


def test_an_unknown_name_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="nothing called 'slide'") as refused:
        main(Asked(only=("slide",), work=tmp_path))
    assert "ours-sliding" in refused.value.hint


def test_corpora_are_kept_in_a_cache_of_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert work_folder(Asked()) == tmp_path / "strandline" / "bench"
    assert work_folder(Asked(work=tmp_path / "here")) == tmp_path / "here"


def test_what_counts_lies_between_the_warm_up_and_the_last_batch_with_data() -> None:
    batches = [{"rows": 1_000, "started": 10.0 + n, "ended": 11.0 + n} for n in range(5)]
    batches += [{"rows": 1, "started": 15.0, "ended": 16.0}, {"rows": 0, "started": 16.0, "ended": 17.0}]
    samples = [Sample(10, 0, 1), Sample(13, 30, 9), Sample(15, 34, 5), Sample(17, 99, 50)]
    run = weighed(CELL, 0, batches, samples)
    assert (run.events, run.cpu_seconds, run.wall_seconds, run.peak_bytes) == (1_000, 2.0, 1.0, 9)
    assert (run.per_cpu_second, run.per_second) == (500.0, 1_000.0)
    assert (len(run.batch_cpu), run.counted) == (5, 1)
    assert weighed(replace(CELL, warm_up=2), 0, batches, samples).counted == 3


def test_a_run_that_loses_count_or_dies_has_no_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(CELL, corpus=replace(CELL.corpus, keys=3, batches=2, per_batch=10))

    def dies(module: str, home: Path) -> tuple[list[Sample], int]:
        (home / "output.txt").write_text("…\njava.lang.OutOfMemoryError\n")
        return [], 1

    monkeypatch.setattr(runs, "started", dies)
    run = runs.measure(small, 0, tmp_path, check=False)
    assert run.failure == "ended with code 1: java.lang.OutOfMemoryError"

    def miscounts(module: str, home: Path) -> tuple[list[Sample], int]:
        batches = [{"rows": 10, "started": 1.0, "ended": 2.0}] * 2
        counts = {"read": 20, "contributed": 19, "late": 0, "dead": 0, "filtered": 0}
        (home / "run.json").write_text(json.dumps({"timed": {"batches": batches, "counts": counts}}))
        return [Sample(1, 0, 1), Sample(2, 1, 1)], 0

    monkeypatch.setattr(runs, "started", miscounts)
    assert "lost count" in runs.measure(small, 0, tmp_path, check=False).failure


@pytest.mark.slow
def test_a_process_of_its_own_is_started_and_watched(tmp_path: Path) -> None:
    (tmp_path / "order.json").write_text("{}")
    _, code = runs.started("benchmarks.contestant", tmp_path)
    assert code == 1
    assert "KeyError" in (tmp_path / "output.txt").read_text()


@pytest.mark.slow
def test_a_benchmark_that_is_told_to_end_takes_its_run_with_it(tmp_path: Path) -> None:
    """The run leads a session of its own, so nobody else would end it."""
    (tmp_path / "sleeper.py").write_text("import pathlib, time\npathlib.Path('up').touch()\ntime.sleep(600)\n")
    program = f"""
import pathlib, signal, sys
from benchmarks import runs
from benchmarks.turns import end_with_the_run
runs.ROOT = pathlib.Path({str(tmp_path)!r})
end_with_the_run()
runs.started("sleeper", pathlib.Path({str(tmp_path)!r}))
"""
    harness = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT)
    until = time.monotonic() + 60
    while not (tmp_path / "up").exists() and time.monotonic() < until:
        time.sleep(0.02)
    harness.terminate()
    assert harness.wait(60) == 128 + signal.SIGTERM
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if f"{tmp_path}/order" in _command(path)]


def _command(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""  # it has ended


def test_a_pane_with_nothing_new_has_no_latency() -> None:
    told = {"began": 9.9, "heard": [[10.0, [9_900]], [12.0, [11_700, 11_800]], [13.0, [11_800, 12_900]]]}
    assert latency.latencies(told, warm_up=1) == [300.0, 200.0, 100.0]
    assert latency.latencies({"began": 9.9, "heard": []}, warm_up=1) == []
