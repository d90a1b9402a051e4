"""`strandline dashboard` as a user starts it, and the dashboard of a demo."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import AbstractContextManager
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import pytest

import strandline as sl
from strandline.cli.actions.dashboard import RedrivePipelines, folders
from strandline.cli.demo import demo
from strandline.cli.demo.dashboard_process import DashboardProcess
from strandline.cli.demo.log import GeneratedLog
from strandline.cli.main import main
from strandline.connectors.scores import Scores
from strandline.observe.known_jobs import remember
from strandline.plan.compile import to_stages
from strandline.spark.delivery.deliver import Delivered
from tests.dashboard.filled import JobToFill, fill
from tests.dashboard.letters import letters_pipeline

PIPELINE = """
from pathlib import Path
from tests.dashboard.letters import letters_pipeline
pipeline = letters_pipeline(Path({folder!r}))
"""


@pytest.mark.slow
def test_dashboard_prints_a_link_that_opens_it_and_ends_with_ctrl_c(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    fill(tmp_path / "jobs" / "one", JobToFill("one", batches=3))
    program = "from strandline.cli.main import main; main(['dashboard', sys.argv[1], '--port', '0'])"
    command = [sys.executable, "-u", "-c", f"import sys; {program}", str(tmp_path / "jobs")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            link = process.stdout.readline().split()[-1]
            opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
            assert opener.open(link).status == 200
            address = link.partition("/enter")[0]
            output: list[str] = []
            while not output:
                output = [job["name"] for job in json.load(opener.open(f"{address}/api/jobs"))["jobs"]]
            assert output == ["one"]
            process.stdout.readline()
            assert process.stdout.readline().startswith("For another browser: http://127.0.0.1:")
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_a_missing_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["dashboard", str(tmp_path / "nowhere"), "--port", "0"])
    assert ended.value.code == 2
    assert "there is no folder" in capsys.readouterr().err


def test_without_folders_the_jobs_of_this_machine_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_JOBS", str(tmp_path / "jobs.json"))
    assert folders([]) == []
    remember(fill(tmp_path / "one", JobToFill(batches=1)))
    assert folders([]) == [tmp_path / "one"]
    fill(tmp_path / "more" / "two", JobToFill(batches=1))
    assert folders([tmp_path / "more"]) == [tmp_path / "more" / "two"]


def a_job_of(pipeline: sl.Pipeline, folder: Path) -> Path:
    fill(folder, JobToFill(batches=1))
    about = json.loads((folder / "strandline.json").read_text())
    about["fingerprint"] = to_stages(pipeline.root).fingerprint
    (folder / "strandline.json").write_text(json.dumps(about))
    return folder


def test_letters_are_redriven_by_a_pipeline_given_by_option(tmp_path: Path) -> None:
    job = a_job_of(letters_pipeline(tmp_path), tmp_path / "job")
    (tmp_path / "named_pipeline.py").write_text(PIPELINE.format(folder=str(tmp_path)))
    opened = RedrivePipelines([f"{tmp_path / 'named_pipeline.py'}:pipeline"]).open(job)
    assert opened is not None
    assert [*opened.sources]
    assert RedrivePipelines().open(job) is None


def test_letters_are_redriven_by_the_pipeline_that_started_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_JOBS", str(tmp_path / "jobs.json"))
    job = a_job_of(letters_pipeline(tmp_path), tmp_path / "job")
    (tmp_path / "known_pipeline.py").write_text(PIPELINE.format(folder=str(tmp_path)))
    remember(job, f"{tmp_path / 'known_pipeline.py'}:pipeline")
    assert RedrivePipelines().open(job) is not None
    other = fill(tmp_path / "other", JobToFill(batches=1))
    remember(other, f"{tmp_path / 'known_pipeline.py'}:pipeline")
    assert RedrivePipelines().open(other) is None
    monkeypatch.chdir(tmp_path)
    assert RedrivePipelines().open(job) is None


class RecordingView:
    """A view that records its messages."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def say(self, text: str) -> None:
        self.messages.append(text)

    def delivered(self, batch: Delivered) -> None:
        pass

    def close(self) -> None:
        pass


def shown(folder: Path, view: RecordingView) -> AbstractContextManager[Callable[[str], None]]:
    return demo._with_dashboard(folder, demo.DemoOptions(7, 10, 10), GeneratedLog(Scores(7, 10, 10), folder), view)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[DashboardProcess]:
    """Every dashboard that a demo starts."""
    found: list[DashboardProcess] = []

    def start(*given: Any) -> DashboardProcess:
        found.append(DashboardProcess(*given))
        return found[-1]

    monkeypatch.setattr(demo, "DashboardProcess", start)
    return found


@pytest.mark.slow
def test_a_demo_shows_its_dashboard_link_with_every_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[DashboardProcess]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    view = RecordingView()
    with shown(tmp_path, view) as say:
        say("Starting Spark")
        link = view.messages[-1].partition("\nDashboard: ")[2]
        assert urllib.request.urlopen(link).status == 200
        while len(view.messages) < 2:
            time.sleep(0.02)
    first, again = view.messages
    assert first.startswith("Starting Spark\n")
    assert again.startswith("Starting Spark\n")
    assert link not in again
    # No page is open, so it ends with the demo.
    assert started[0].process.wait(60) == 0


@pytest.mark.slow
def test_a_dashboard_outlives_a_demo_that_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    plays = {"home": str(tmp_path), "seed": 7, "events": 10, "rate": 10, "servers": None}
    code = (
        "import json, os, signal, sys; from strandline.cli.demo.dashboard_process import DashboardProcess; "
        "b = DashboardProcess(json.loads(sys.argv[1])); print(b.process.pid, b.url, flush=True); "
        "os.killpg(0, signal.SIGKILL)"
    )
    killed = subprocess.run(
        [sys.executable, "-c", code, json.dumps(plays)], stdout=subprocess.PIPE, text=True, start_new_session=True,
        check=False,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL
    pid, link = killed.stdout.split()
    try:
        assert urllib.request.urlopen(link).status == 200
    finally:
        os.kill(int(pid), signal.SIGTERM)


@pytest.mark.slow
def test_a_demo_runs_without_a_dashboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    view = RecordingView()
    with shown(tmp_path, view) as say:
        say("Starting Spark")
    assert view.messages[0].startswith("Starting Spark\nNo dashboard: cannot keep a key")
