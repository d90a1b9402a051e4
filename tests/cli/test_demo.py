"""The demo's own part: which folder, which screen, how it ends. What it runs is tested where it lives."""

import json
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import strandline as sl
from strandline.checkpoint.job_folder import Checkpoint
from strandline.cli.demo import demo
from strandline.cli.demo.recount import Recount
from strandline.cli.main import main
from strandline.kernel.output import Counts, Output
from strandline.kernel.watermarks import Progress
from strandline.plan.compile import to_stages
from strandline.spark.delivery.deliver import Delivered
from strandline.spark.launch import preflight
from strandline.spark.launch.find_java import Java


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(("demo", *words))
    code = ended.value.code
    assert isinstance(code, int)
    return code


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(each.relative_to(folder)): each.read_bytes() if each.is_file() else None for each in folder.rglob("*")}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine that has Java and memory, so that what is tested is the folder."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(preflight, "find_java", lambda: Java(tmp_path / "bin" / "java", "17.0.1", tmp_path))
    monkeypatch.setattr(preflight, "require_memory", lambda: None)


@pytest.mark.usefixtures("machine")
def test_a_folder_that_cannot_be_written_is_refused_in_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "below"
    assert run("--folder", str(folder), "--plain") == 2
    told = capsys.readouterr().err.splitlines()
    assert told[0] == f"error: cannot write to the folder {folder / 'checkpoint'}"
    assert told[1] == "  Not a directory"
    assert told[2].startswith("  hint: choose another folder")
    assert len(told) == 3
    assert list(contents(tmp_path)) == ["file"]


@pytest.mark.usefixtures("machine")
def test_a_folder_of_another_seed_is_refused_and_left_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = demo.pipeline(sl.scores(seed=7), tmp_path / "scores.db").root
    Checkpoint(tmp_path / "checkpoint").claim(root, to_stages(root))
    before = contents(tmp_path)
    assert run("--folder", str(tmp_path), "--seed", "8", "--plain") == 2
    told = capsys.readouterr().err
    assert told.startswith(f"error: the checkpoint in {tmp_path / 'checkpoint'} was made by another definition\n")
    assert "source seed was 7 and is 8: positions in one source have no meaning in another" in told
    assert "  hint: " in told
    assert contents(tmp_path) == before


@pytest.mark.usefixtures("machine")
def test_a_folder_with_something_else_in_it_is_refused_and_left_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "thesis.txt").write_text("the only copy")
    before = contents(tmp_path)
    assert run("--folder", str(tmp_path), "--plain") == 2
    assert "is not empty and holds no Strandline checkpoint" in capsys.readouterr().err
    assert contents(tmp_path) == before


@pytest.mark.parametrize("words", [("--events", "3"), ("--events", "0"), ("--rate", "0"), ("--seed", "many")])
def test_a_stream_that_cannot_be_is_refused_before_anything_is_made(
    words: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*words) == 2
    assert list(tmp_path.iterdir()) == []


class PlayedJob:
    """A job that says two batches and ends, or is interrupted."""

    def __init__(self, home: Path, listener: Any, *, interrupted: bool) -> None:
        self.last: Delivered | None = None
        self.stopped = False
        self._listener, self._interrupted = listener, interrupted
        home.mkdir(parents=True, exist_ok=True)

    def await_end(self) -> bool:
        counts = Counts(read=9, contributed=7, late=1, dead=1)
        for batch in (0, 1):
            output = Output(progress=Progress(5_000, 9_000), counts=counts if batch else Counts())
            self.last = Delivered(batch, output, {"origin": 1}, repeated=False)
            self._listener(self.last)
        if self._interrupted:
            raise KeyboardInterrupt
        return True

    def stop(self) -> None:
        self.stopped = True


class PlayedPipeline:
    """Stands in for the demo's pipeline: nothing is read, nothing is written."""

    def __init__(self) -> None:
        self.jobs: list[PlayedJob] = []
        self.folders: list[Path] = []
        self.interrupted = False

    def __call__(self, source: Any, database: Path) -> "PlayedPipeline":
        return self

    def run(self, *, checkpoint: Path, listener: Any) -> PlayedJob:
        self.folders.append(checkpoint.parent)
        self.jobs.append(PlayedJob(checkpoint, listener, interrupted=self.interrupted))
        return self.jobs[-1]


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> PlayedPipeline:
    pipeline = PlayedPipeline()
    monkeypatch.setattr(demo, "pipeline", pipeline)
    monkeypatch.setattr(demo, "_with_dashboard", lambda _home, _options, _log, view: nullcontext(view))
    cell = Counter({("red", "2024-05-01 12:00:00.000"): 5})
    monkeypatch.setattr(demo, "recount_log", lambda *_: Recount(cell, Counter(), cell, 1, 1))
    monkeypatch.chdir(tmp_path)
    return pipeline


def test_without_a_terminal_the_output_is_plain_lines(
    played: PlayedPipeline, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--folder", str(tmp_path / "run")) == 0
    told = capsys.readouterr().out
    assert "\x1b" not in told
    lines = told.splitlines()
    assert lines[0] == f"Starting Spark; the run is kept in {tmp_path / 'run'}"
    assert lines[1].startswith("Spark is up after ")
    assert lines[2].startswith("batch 0: watermark 00:00:05, clock 00:00:09; 0 in = 0 contributed + 0 late + 0 dead")
    assert lines[3].endswith("; 9 in = 7 contributed + 1 late + 1 dead letters")


def test_a_run_whose_totals_agree_says_so_and_what_to_try_next(
    played: PlayedPipeline, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--folder", str(tmp_path / "run"), "--plain") == 0
    told = capsys.readouterr().out
    assert "All 1 cells of team and window agree; 1 records are dead letters, and 1 are broken in the log." in told
    assert f'sqlite3 {tmp_path / "run" / "scores.db"} "SELECT' in told
    assert json.loads((tmp_path / "run" / "run.json").read_text())["complete"] is True


@pytest.mark.parametrize(("found", "told"), [("/usr/bin/strandline", "  strandline"), (None, "  venv/bin/strandline")])
def test_what_to_try_next_is_told_as_it_can_be_typed(
    played: PlayedPipeline,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    found: str | None,
    told: str,
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: found)
    beside = Path("venv/bin/strandline").absolute()
    beside.parent.mkdir(parents=True)
    beside.touch()
    monkeypatch.setattr("sys.executable", str(beside.with_name("python")))
    assert run() == 0
    assert f"{told} dashboard strandline-demo/run-1 " in capsys.readouterr().out


@pytest.mark.parametrize(("stream", "dead", "where"), [(4, 1, "red 2024-05-01 12:00:00.000"), (5, 2, "dead letters")])
def test_a_run_whose_totals_disagree_fails_and_says_where(
    played: PlayedPipeline,
    stream: int,
    dead: int,
    where: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cell = ("red", "2024-05-01 12:00:00.000")
    wrong = Recount(Counter({cell: stream}), Counter(), Counter({cell: 5}), dead, 1)
    monkeypatch.setattr(demo, "recount_log", lambda *_: wrong)
    assert run("--folder", str(tmp_path / "run"), "--plain") == 2
    told = capsys.readouterr()
    assert "error: stream and batch job disagree" in told.err
    assert f"first at {where}" in told.err
    assert "agree;" not in told.out


def test_ctrl_c_stops_the_job_and_says_how_to_go_on(
    played: PlayedPipeline, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    played.interrupted = True
    assert run("--folder", str(tmp_path / "run"), "--plain") == 0
    assert played.jobs[0].stopped
    told = capsys.readouterr().out
    assert told.splitlines()[-1] == (
        f"Stopped. Run the same command again: it resumes from its checkpoint in {tmp_path / 'run'}."
    )
    assert json.loads((tmp_path / "run" / "run.json").read_text())["complete"] is False


def test_without_a_folder_every_run_gets_a_new_one(played: PlayedPipeline) -> None:
    assert [run() for _ in range(3)] == [0, 0, 0]
    assert [str(folder) for folder in played.folders] == [f"strandline-demo/run-{number}" for number in (1, 2, 3)]


def test_without_a_folder_a_stopped_run_goes_on_if_it_is_the_one_asked_for(played: PlayedPipeline) -> None:
    played.interrupted = True
    run("--seed", "3")
    run("--seed", "4")
    played.interrupted = False
    run("--seed", "4")
    run("--seed", "4")
    assert [folder.name for folder in played.folders] == ["run-1", "run-2", "run-2", "run-3"]


def test_runs_are_numbered_not_spelled(played: PlayedPipeline) -> None:
    for number in (9, 10):
        Path(f"strandline-demo/run-{number}").mkdir(parents=True)
    run()
    assert played.folders[0].name == "run-11"
