"""Peers without their environments: the same lines for all, what a start costs, who is missing, what the page says."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from benchmarks import feeds, render
from benchmarks.broker import Broker
from benchmarks.corpus import FLUSH_KEY, Corpus
from benchmarks.meter import Sample
from benchmarks.peers import bench, environments, lines, programs_run, topics
from benchmarks.peers.catalogue import ABSENT, JAVA, PEERS
from benchmarks.peers.programs_run import Program, Used
from benchmarks.results import Measured, to_results
from benchmarks.runs import ROOT, Run, watched
from benchmarks.turns import Asked, chosen_cells
from tests.benchmarks.sample import results

SMALL = Corpus(keys=5, batches=2, per_batch=300, late=False)
CELL = Program("bytewax", PEERS["bytewax"], SMALL)
PROGRAM = """
import json
from benchmarks.peers.programs.told import Heard, read_order
order = read_order()
heard = Heard(order)
held = {}
for line in open(order.events):
    event = json.loads(line)
    at = (event["key"], event["ms"] // order.length * order.length)
    total, plays = held.get(at, (0, 0))
    held[at] = total + event["value"], plays + 1
for (key, start), (total, plays) in held.items():
    heard.hear(key, start, total, plays + WRONG)
heard.tell()
"""


def test_the_same_events_stand_in_one_file_and_in_a_file_for_each_batch(tmp_path: Path) -> None:
    folder, digest = lines.written(SMALL, tmp_path)
    whole = (folder / lines.WHOLE).read_bytes()
    parts = sorted((folder / lines.PARTS).iterdir(), key=lambda path: path.stat().st_mtime)
    assert whole == b"".join(path.read_bytes() for path in parts)
    frame = pl.read_ndjson(whole)
    assert frame.columns == ["key", "value", "ms"]
    assert (len(parts), frame.height, frame["key"][-1]) == (3, 601, FLUSH_KEY)
    assert lines.written(SMALL, tmp_path / "again")[1] == digest
    assert feeds.from_json(feeds.to_json(feeds.Lines("/here"))) == feeds.Lines("/here")


def as_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, wrong: int = 0) -> None:
    """The peer's program is stood in for by one that needs nothing but Python."""
    (tmp_path / "program.py").write_text(PROGRAM.replace("WRONG", str(wrong)))
    monkeypatch.setattr(programs_run, "python_of", lambda name, work: Path(sys.executable))

    def stands_in(command: list[str], home: Path, environment: Any) -> tuple[list[Sample], int]:
        assert command[:3] == [sys.executable, "-m", "benchmarks.peers.programs.on_bytewax"]
        _, code = watched([sys.executable, str(tmp_path / "program.py"), command[3]], home, environment)
        events = json.loads((home / "order.json").read_text())["count"]
        return [Sample(0, 0, 1), Sample(1 + events / 600, 2 + events / 300, 5), Sample(99, 0, 0)], code

    monkeypatch.setattr(programs_run, "watched", stands_in)


@pytest.mark.slow
def test_what_an_event_costs_is_what_twice_as_many_use_more(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    as_program(monkeypatch, tmp_path)
    run = programs_run.measure(CELL, 0, tmp_path / "work", check=True)
    assert run.failure == ""
    assert (run.events, run.cpu_seconds, run.wall_seconds, run.peak_bytes) == (600, 2.0, 1.0, 5)
    assert run.batch_cpu == [4.0, 6.0]
    assert run.checked["wrong"] == 0 < run.checked["cells"]
    assert not [*(tmp_path / "work").glob("run-*")]


def test_a_program_whose_windows_are_wrong_has_no_number(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    as_program(monkeypatch, tmp_path, wrong=1)
    assert "windows are wrong" in programs_run.measure(CELL, 0, tmp_path / "work", check=True).failure
    assert "its windows hold" in programs_run.measure(CELL, 1, tmp_path / "work", check=False).failure


def test_a_longer_run_that_used_no_more_has_no_number() -> None:
    uses = [Used(5, 3), Used(4, 4)]
    assert "too busy" in programs_run.weighed(CELL, 0, uses, {}).failure
    small = programs_run.weighed(replace(CELL, start_counts=True), 0, uses, {})
    assert (small.events, small.cpu_seconds, small.wall_seconds, small.failure) == (1_200, 4, 4, "")


@pytest.mark.slow
def test_a_peer_that_does_not_install_is_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def no(name: str, work: Path) -> Path:
        raise environments.NotInstalled("does not install: no matching distribution")

    monkeypatch.setattr(programs_run, "python_of", no)
    assert bench.main(Asked(quick=True, only=("bytewax",), work=tmp_path)) == 0
    (kept,) = tmp_path.glob("runs/*/peers.json")
    told = json.loads(kept.read_text())
    row = next(row for row in told["rows"] if row["name"] == "bytewax")
    assert row["failure"] == f"bytewax: {ABSENT}: does not install: no matching distribution"
    assert "no matching distribution" in render.page(results(), of_peers=told)


def test_an_environment_that_cannot_be_made_says_what_pip_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def run(command: list[str], **_: Any) -> "subprocess.CompletedProcess[str]":
        return subprocess.CompletedProcess(command, int("pip" in command), "", "looking\nERROR: no such thing\n")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(environments.NotInstalled, match="does not install: ERROR: no such thing"):
        environments.python_of("bytewax", tmp_path)


def test_an_environment_is_made_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = []

    def run(command: list[str], **_: Any) -> "subprocess.CompletedProcess[str]":
        made.append(command)
        (tmp_path / "environments").mkdir(exist_ok=True)
        for part in command:
            if part.startswith(str(tmp_path)) and not part.endswith("python"):
                Path(part).mkdir(exist_ok=True)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    assert environments.python_of("flink", tmp_path) == environments.python_of("flink", tmp_path)
    assert len(made) == 2
    assert "apache-flink==2.3.0" in made[1]


@pytest.mark.parametrize("name", [name for name, peer in PEERS.items() if peer.program])
def test_every_peer_has_a_program_and_pinned_packages(name: str) -> None:
    peer = PEERS[name]
    assert (
        ROOT / "benchmarks" / "peers" / "programs" / f"{peer.program}{'' if '.' in peer.program else '.py'}"
    ).is_file()
    if peer.environment != JAVA:
        assert all("==" in package for package in environments.packages_of(peer.environment))
    assert ("@v" in peer.command) == bool(peer.command)


def test_a_command_that_go_builds_is_built_once_and_told_to_the_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    built = []

    def run(command: list[str], env: dict[str, str], **_: Any) -> "subprocess.CompletedProcess[str]":
        built.append(command)
        Path(env["GOBIN"]).mkdir(parents=True)
        (Path(env["GOBIN"]) / "prism").touch()
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(programs_run, "python_of", lambda name, work: Path("python"))
    peer = PEERS["beam-prism"]
    command = programs_run.command_of(peer, tmp_path)
    assert command == programs_run.command_of(peer, tmp_path)
    assert command[:3] == ("python", "-m", "benchmarks.peers.programs.on_beam_prism")
    assert Path(command[3]).is_file()
    assert built == [["/usr/bin/go", "install", peer.command]]


def test_a_command_in_go_needs_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(environments.NotInstalled, match="needs Go"):
        environments.command_in_go("example.org/tool@v1.0.0", tmp_path)


def test_a_program_in_java_needs_a_jdk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    streams = Program("kafka-streams", PEERS["kafka-streams"], SMALL)
    assert "there is no javac" in programs_run.measure(streams, 0, tmp_path, check=True).failure


def test_a_keyed_topic_is_closed_in_every_partition() -> None:
    flush = topics._flushes(SMALL)
    assert flush.key.tolist() == [FLUSH_KEY, FLUSH_KEY]
    assert len(set(flush.at.tolist())) == 1


def test_topics_by_key_are_none_of_those_that_sources_are_compared_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    filled = []
    monkeypatch.setattr(topics, "_fill", lambda *told: filled.append(told))
    monkeypatch.setattr(Broker, "servers", "localhost:1")
    mine = Broker(tmp_path)
    assert topics.keyed(SMALL, mine) == topics.keyed(SMALL, mine)
    assert len(filled) == 1
    assert mine.digests() == {}


def test_every_row_compares_cells_that_are_measured() -> None:
    for suite in (bench.full(), bench.quick()):
        names = {cell.name for group in suite.groups for cell in group.cells}
        assert {name for row in (*suite.rows, *suite.reported) for name in row.cells} == names
        for group in suite.groups[1:]:
            assert not any(cell.corpus.late for cell in group.cells)


def test_a_quick_run_asks_some_and_the_others_by_their_names() -> None:
    quick = bench.quick()
    assert {row.name for row in quick.rows} == {*bench.AT_FIRST}
    assert {row.name for row in (*quick.rows, *quick.reported)} == {row.name for row in bench.full().rows}
    assert chosen_cells(quick, Asked(quick=True)) == {*bench.AT_FIRST, "ours-lines", "ours-topic"}
    assert chosen_cells(quick, Asked(quick=True, only=("pyflink",))) == {"ours-lines", "pyflink"}


@pytest.mark.slow
def test_the_page_tells_of_peers_what_they_promise_and_what_a_start_costs() -> None:
    cells = [cell for group in bench.full().groups for cell in group.cells]
    runs = [
        Run(cell.name, 0, 500_000, cpu_seconds=number, wall_seconds=1, batch_cpu=[7.0, 9.0], counted=2)
        for number, cell in enumerate(cells, 1)
    ]
    told = to_results(Measured(runs), bench.full(), "strandline bench peers", {})
    page = render.page(results(), of_peers=told)
    assert "| Bytewax 0.21, one worker | 1.17x |" in page
    assert (
        "| bytewax | 71,429 | 5.0 | 0.0 GB | none: no recovery store; state in memory; late events are dropped |"
        in page
    )
    failed = replace(runs[6], failure="3 of 9 windows are wrong")
    told = to_results(Measured([*runs[:6], failed]), bench.full(), "strandline bench peers", {})
    assert "| bytewax | failed |" in render.page(results(), of_peers=told)
