"""The profile: every thread's time is told once, also of those that have ended, and the parts are the whole."""

import io
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks import profile, suite, threads
from benchmarks.meter import Sample
from benchmarks.threads import DRIVER, JVM_REST, POLARS, WORKERS, Ledger, Look, between, purpose_of, watch
from benchmarks.turns import Asked
from strandline.errors import PlanError, RunError

HZ = os.sysconf("SC_CLK_TCK")
TASKS, COMPILING = "JVM: tasks", "JVM: compiling"


def line(number: int, name: str, ticks: int, born: int, session: int = 10) -> str:
    """As the kernel writes it."""
    return f"{number} ({name}) S 1 1 {session} 0 -1 0 0 0 0 0 {ticks} 0 7 7 20 0 1 0 {born} 5000 9 0 0\n"


def process(proc: Path, pid: int, command: str, ticks: int, own: dict[int, tuple[str, int]], born: int = 1) -> None:
    """A process with all of its threads, as they are now."""
    home = proc / str(pid)
    for old in (home / "task").glob("*/stat"):
        old.unlink()
    (home / "task").mkdir(parents=True, exist_ok=True)
    (home / "stat").write_text(line(pid, "any", ticks, born))
    (home / "cmdline").write_bytes(command.replace(" ", "\0").encode())
    (home / "comm").write_text(command.rpartition(" ")[2] + "\n")
    for thread, (name, used) in own.items():
        (home / "task" / str(thread)).mkdir(exist_ok=True)
        (home / "task" / str(thread) / "stat").write_text(line(thread, name, used, born))


def test_a_thread_that_has_ended_keeps_what_it_was_seen_with_and_the_rest_is_its_process_s(tmp_path: Path) -> None:
    ledger = Ledger(10, tmp_path)
    process(tmp_path, 10, "python -m contestant", 50, {10: ("python", 50)})
    process(tmp_path, 11, "/usr/bin/java -cp x", 300, {1: ("Executor task l", 200), 2: ("C2 (strange) x", 60)})
    assert ledger.look().seconds == {DRIVER: 50 / HZ, TASKS: 200 / HZ, JVM_REST: 100 / HZ}
    process(tmp_path, 11, "/usr/bin/java -cp x", 400, {2: ("C2 CompilerThre", 90)})
    after = ledger.look().seconds
    assert after[TASKS] == 200 / HZ
    assert after[COMPILING] == 30 / HZ
    assert sum(after.values()) == pytest.approx(450 / HZ)


def test_a_number_that_is_used_again_is_another_process(tmp_path: Path) -> None:
    ledger = Ledger(10, tmp_path)
    process(tmp_path, 12, "python -m pyspark.daemon", 80, {12: ("python", 30), 13: ("polars-0", 50)})
    assert ledger.look().seconds == {WORKERS: 30 / HZ, POLARS: 50 / HZ}
    process(tmp_path, 12, "python -m pyspark.daemon", 5, {12: ("python", 5)}, born=2)
    assert ledger.look().seconds == {WORKERS: 35 / HZ, POLARS: 50 / HZ}


def test_a_process_that_ends_while_it_is_looked_at_is_no_surprise(tmp_path: Path) -> None:
    process(tmp_path, 10, "python", 5, {10: ("python", 5)})
    (tmp_path / "10" / "task" / "10" / "stat").unlink()
    (tmp_path / "10" / "cmdline").unlink()
    (tmp_path / "11").mkdir()
    (tmp_path / "11" / "stat").write_text(line(11, "x", 9, 1))
    assert Ledger(10, tmp_path).look().seconds == {DRIVER: 5 / HZ}


@pytest.mark.parametrize(
    ("kind", "thread", "purpose"),
    [
        ("jvm", "G1 Conc#0", "JVM: collecting garbage"),
        ("jvm", "stream executio", "JVM: stream execution"),
        ("jvm", "rocksdb:low", "JVM: state in the background"),
        ("jvm", "Thread-12", "JVM: what the driver asks of it"),
        ("jvm", "process reaper", JVM_REST),
        ("worker", "polars-0", POLARS),
        ("worker", "python3", WORKERS),
        ("clock", "python3", threads.CLOCKS),
        ("driver", "polars-0", DRIVER),
    ],
)
def test_a_thread_is_told_by_its_name(kind: str, thread: str, purpose: str) -> None:
    assert purpose_of(kind, thread) == purpose
    assert purpose in threads.ORDER


def test_a_real_process_is_watched() -> None:
    program = "import time\nwhile time.process_time() < 0.3: pass\nprint('done', flush=True)\ninput()"
    run = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    with run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"done\n"
        assert Ledger(run.pid).look().seconds[DRIVER] > 0.2  # ticks are whole ones
        with watch(run.pid) as watched:
            while not watched.looks:
                time.sleep(0.05)
        run.communicate(b"\n")
    assert watched.looks[0].seconds[DRIVER] > 0.2


def test_between_two_looks_time_is_used_evenly() -> None:
    looks = [Look(10, {TASKS: 1.0}), Look(12, {TASKS: 3.0, POLARS: 4.0}), Look(13, {TASKS: 3.0, POLARS: 4.0})]
    assert between(looks, 11, 99) == {TASKS: 1.0, POLARS: 2.0}
    with pytest.raises(ValueError, match="no samples"):
        between([], 0, 1)


def cell() -> suite.Cell:
    return replace(suite.quick().groups[0].cells[0], warm_up=1)


def batch(number: int, **more: Any) -> dict[str, Any]:
    return {"batch": number, "rows": 1_000, "started": number, "ended": number + 1.0, "milliseconds": {}, **more}


def test_the_parts_are_the_whole_and_the_warm_up_is_none_of_it() -> None:
    spent = {"busy": {"read": 0.1, "prepare": 0.2, "step": 0.2, "state": 0.1}, "took": {"play": 0.8, "deliver": 0.1}}
    samples = [Sample(1, 0, 1), Sample(4, 6, 1)]
    looks = [Look(1, {}), Look(4, {TASKS: 2.4, WORKERS: 1.8, POLARS: 1.2})]
    batches = [batch(1, **spent), batch(2, **spent), batch(3, **spent), {**batch(4), "rows": 1}]
    found = profile.profile_of(cell(), batches, samples, looks)
    assert found.events == 2_000
    assert sum(found.threads.values()) == pytest.approx(found.cpu_seconds) == pytest.approx(4.0)
    assert found.threads[profile.UNSEEN] == pytest.approx(0.4)
    assert found.tasks["prepare"] == pytest.approx(0.4)
    assert found.crossing == pytest.approx(2.0 - 1.0)
    assert found.stages["deliver"] == pytest.approx(0.2)
    assert found.stages["shuffle"] == pytest.approx(2 * (0.8 - 0.3))
    shown = io.StringIO()
    Console(file=shown, width=100, highlight=False).print(profile.told(found))
    lines = shown.getvalue().splitlines()
    assert lines[0] == "ours: 2,000 events, 4.0 CPU-seconds in 2.0 s, 500 events per CPU-second"
    assert any(each.split() == ["JVM:", "tasks", "1.60", "40%", "800,000"] for each in lines)
    assert any(each.startswith("crossing, by difference") for each in lines)


def test_somebody_who_does_not_tell_what_it_did_is_told_by_its_threads_alone() -> None:
    looks = [Look(1, {}), Look(3, {TASKS: 2.0})]
    found = profile.profile_of(cell(), [batch(1), batch(2)], [Sample(1, 0, 1), Sample(3, 2, 1)], looks)
    assert (found.tasks, found.crossing, found.stages) == ({}, None, {})
    assert len(profile.told(found).renderables) == 3


def test_one_cell_is_run_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The process is stood in for; then by one that loses count, and by one that fails."""
    timed: dict[str, Any] = {"batches": [batch(1), batch(2)]}
    ends = [0, 0, 3]

    def runs(module: str, home: Path, beside: Any) -> tuple[list[Sample], int]:
        assert json.loads((home / "order.json").read_text())["contestant"] == "ours"
        (home / "run.json").write_text(json.dumps({"timed": timed}))
        (home / "output.txt").write_text("no more memory\n")
        beside(os.getpid()).looks.append(Look(1, {TASKS: 1.0}))
        return [Sample(1, 0, 1), Sample(3, 2, 1)], ends.pop(0)

    monkeypatch.setattr(profile, "started", runs)
    monkeypatch.setattr("benchmarks.corpus.written", lambda corpus, folder: (folder / corpus.name, ""))
    asked = Asked(quick=True, work=tmp_path)
    assert profile.main(asked, as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["threads"] == {profile.UNSEEN: 1.0}
    timed["counts"] = {"read": 9, "contributed": 8, "late": 0, "dead": 0}
    with pytest.raises(RunError, match="loses count"):
        profile.main(asked)
    with pytest.raises(RunError, match="failed") as failed:
        profile.main(asked)
    assert "no more memory" in failed.value.detail
    with pytest.raises(PlanError, match="no cell 'nobody'"):
        profile.main(asked, "nobody")
