"""The demo's folder, its screen and its end. The pipeline that it runs is tested elsewhere."""

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
    """A machine with Java and memory, so that only the folder is tested."""
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
    printed = capsys.readouterr().err.splitlines()
    assert printed[0] == f"error: cannot write to the folder {folder / 'checkpoint'}"
    assert printed[1] == "  Not a directory"
    assert printed[2].startswith("  hint: choose another folder")
    assert len(printed) == 3
    assert list(contents(tmp_path)) == ["file"]


@pytest.mark.usefixtures("machine")
def test_a_folder_of_another_seed_is_refused_and_unchanged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = demo.pipeline(sl.scores(seed=7), tmp_path / "scores.db").root
    Checkpoint(tmp_path / "checkpoint").claim(root, to_stages(root))
    before = contents(tmp_path)
    assert run("--folder", str(tmp_path), "--seed", "8", "--plain") == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"error: the checkpoint in {tmp_path / 'checkpoint'} was made by another definition\n")
    assert "source seed was 7 and is 8: positions of one source mean nothing to another" in printed
    assert "  hint: " in printed
    assert contents(tmp_path) == before


@pytest.mark.usefixtures("machine")
def test_a_folder_with_other_files_is_refused_and_unchanged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "thesis.txt").write_text("the only copy")
    before = contents(tmp_path)
    assert run("--folder", str(tmp_path), "--plain") == 2
    assert "is not empty and holds no Strandline checkpoint" in capsys.readouterr().err
    assert contents(tmp_path) == before


@pytest.mark.parametrize("words", [("--events", "3"), ("--events", "0"), ("--rate", "0"), ("--seed", "many")])
def test_an_invalid_stream_is_refused_before_anything_is_created(
    words: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*words) == 2
    assert list(tmp_path.iterdir()) == []


class FakeJob:
    """A job that delivers two batches and ends, or is interrupted."""

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


class FakePipeline:
    """A fake of the demo's pipeline that reads and writes nothing."""

    def __init__(self) -> None:
        self.jobs: list[FakeJob] = []
        self.folders: list[Path] = []
        self.interrupted = False

    def __call__(self, source: Any, database: Path) -> "FakePipeline":
        return self

    def run(self, *, checkpoint: Path, listener: Any) -> FakeJob:
        self.folders.append(checkpoint.parent)
        self.jobs.append(FakeJob(checkpoint, listener, interrupted=self.interrupted))
        return self.jobs[-1]


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakePipeline:
    pipeline = FakePipeline()
    monkeypatch.setattr(demo, "pipeline", pipeline)
    monkeypatch.setattr(demo, "_with_dashboard", lambda _home, _asked, _log, view: nullcontext(view.say))
    cell = Counter({("red", "2024-05-01 12:00:00.000"): 5})
    monkeypatch.setattr(demo, "recount_log", lambda *_: Recount(cell, Counter(), cell, 1, 1))
    monkeypatch.chdir(tmp_path)
    return pipeline


def test_without_a_terminal_the_output_is_plain_lines(
    played: FakePipeline, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--folder", str(tmp_path / "run")) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    lines = printed.splitlines()
    assert lines[0] == f"Starting Spark; the run is kept in {tmp_path / 'run'}"
    assert lines[1].startswith("Spark is up after ")
    assert lines[2].startswith("batch 0: watermark 00:00:05, clock 00:00:09; 0 in = 0 contributed + 0 late + 0 dead")
    assert lines[3].endswith("; 9 in = 7 contributed + 1 late + 1 dead letters")


def test_a_run_whose_totals_agree_says_so_and_what_to_try_next(
    played: FakePipeline, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--folder", str(tmp_path / "run"), "--plain") == 0
    printed = capsys.readouterr().out
    assert (
        "All 1 totals by team and window agree; 1 records are dead letters, and 1 records in the log are broken."
        in printed
    )
    assert f'sqlite3 {tmp_path / "run" / "scores.db"} "SELECT' in printed
    assert json.loads((tmp_path / "run" / "run.json").read_text())["complete"] is True


@pytest.mark.parametrize(
    ("found", "printed"), [("/usr/bin/strandline", "  strandline"), (None, "  venv/bin/strandline")]
)
def test_the_next_commands_are_printed_ready_to_type(
    played: FakePipeline,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    found: str | None,
    printed: str,
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: found)
    beside = Path("venv/bin/strandline").absolute()
    beside.parent.mkdir(parents=True)
    beside.touch()
    monkeypatch.setattr("sys.executable", str(beside.with_name("python")))
    assert run() == 0
    assert f"{printed} dashboard strandline-demo/run-1 " in capsys.readouterr().out


@pytest.mark.parametrize(("stream", "dead", "where"), [(4, 1, "red 2024-05-01 12:00:00.000"), (5, 2, "dead letters")])
def test_a_run_whose_totals_disagree_fails_and_says_where(
    played: FakePipeline,
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
    printed = capsys.readouterr()
    assert "error: stream and batch job disagree" in printed.err
    assert f"first at {where}" in printed.err
    assert "agree;" not in printed.out


def test_ctrl_c_stops_the_job_and_says_how_to_resume(
    played: FakePipeline, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    played.interrupted = True
    assert run("--folder", str(tmp_path / "run"), "--plain") == 0
    assert played.jobs[0].stopped
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1] == (
        f"Stopped. Run the same command again to resume from the checkpoint in {tmp_path / 'run'}."
    )
    assert json.loads((tmp_path / "run" / "run.json").read_text())["complete"] is False


def test_without_a_folder_every_run_gets_a_new_one(played: FakePipeline) -> None:
    assert [run() for _ in range(3)] == [0, 0, 0]
    assert [str(folder) for folder in played.folders] == [f"strandline-demo/run-{number}" for number in (1, 2, 3)]


def test_without_a_folder_a_stopped_run_with_equal_options_resumes(played: FakePipeline) -> None:
    played.interrupted = True
    run("--seed", "3")
    run("--seed", "4")
    played.interrupted = False
    run("--seed", "4")
    run("--seed", "4")
    assert [folder.name for folder in played.folders] == ["run-1", "run-2", "run-2", "run-3"]


def test_runs_are_sorted_by_number_not_by_text(played: FakePipeline) -> None:
    for number in (9, 10):
        Path(f"strandline-demo/run-{number}").mkdir(parents=True)
    run()
    assert played.folders[0].name == "run-11"
