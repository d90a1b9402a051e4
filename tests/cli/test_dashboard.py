"""`strandline dashboard` as a user starts it, and the dashboard of a demo."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import AbstractContextManager
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import strandline as sl
from strandline.cli.actions.dashboard import RedrivePipelines, folders
from strandline.cli.demo import demo
from strandline.cli.demo.dashboard_process import DashboardProcess
from strandline.cli.demo.log import GeneratedLog
from strandline.cli.live_view import View
from strandline.cli.main import main
from strandline.connectors.scores import Scores
from strandline.kernel.output import Counts, Output
from strandline.kernel.watermarks import Progress
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
    """A view that keeps what it is to show."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def say(self, text: str) -> None:
        self.messages.append(text)

    def delivered(self, batch: Delivered) -> None:
        pass

    def close(self) -> None:
        pass

    def await_text(self, start: str, count: int = 1) -> list[str]:
        """Wait until so many messages with this start were shown, and return what follows it."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            found = [text.removeprefix(start) for text in self.messages if text.startswith(start)]
            if len(found) >= count:
                return found
            time.sleep(0.02)
        raise AssertionError(self.messages)


def with_dashboard(folder: Path, view: RecordingView) -> AbstractContextManager[View]:
    log = GeneratedLog(Scores(7, 10, 10), folder)
    return demo._with_dashboard(folder, demo.StreamOptions(7, 10, 10), log, view)


def a_batch(panes: pl.DataFrame | None) -> Delivered:
    output = Output(progress=Progress(5_000, 9_000), counts=Counts(read=1, contributed=1), panes=panes)
    return Delivered(0, output, {}, repeated=False)


PANES = pl.DataFrame({"total": [1]})


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
def test_a_demo_shows_the_address_of_its_dashboard_once_there_are_panes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[DashboardProcess]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    shown = RecordingView()
    with with_dashboard(tmp_path, shown) as view:
        view.say("Starting Spark")
        view.delivered(a_batch(None))
        assert started == []
        view.delivered(a_batch(PANES))
        view.delivered(a_batch(PANES))
        link = shown.await_text("Dashboard: ")[0]
        assert urllib.request.urlopen(link).status == 200
        # A link is good for one browser, so another one follows.
        assert link not in shown.await_text("Dashboard: ", 2)[1:]
    assert shown.messages[0] == "Starting Spark"
    assert len(started) == 1
    # No page is open: it ends with the demo.
    assert started[0].process.wait(60) == 0


@pytest.mark.slow
def test_a_dashboard_outlives_a_demo_that_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    definition = {"home": str(tmp_path), "seed": 7, "events": 10, "rate": 10, "servers": None}
    code = (
        "import json, os, queue, signal, sys; from strandline.cli.demo.dashboard_process import DashboardProcess; "
        "shown = queue.Queue(); process = DashboardProcess(json.loads(sys.argv[1]), shown.put).process; "
        "print(process.pid, shown.get().removeprefix('Dashboard: '), flush=True); os.killpg(0, signal.SIGKILL)"
    )
    killed = subprocess.run(
        [sys.executable, "-c", code, json.dumps(definition)], stdout=subprocess.PIPE, text=True,
        start_new_session=True, check=False,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL
    pid, link = killed.stdout.split()
    try:
        assert urllib.request.urlopen(link).status == 200
    finally:
        os.kill(int(pid), signal.SIGTERM)


@pytest.mark.slow
def test_a_demo_runs_on_without_a_dashboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[DashboardProcess]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    shown = RecordingView()
    with with_dashboard(tmp_path, shown) as view:
        view.delivered(a_batch(PANES))
        assert shown.await_text("No dashboard: ")[0].startswith("cannot store a key")
    assert started[0].process.wait(60) == 0


def test_a_dashboard_whose_process_cannot_be_started_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "nowhere"))
    shown = RecordingView()
    with with_dashboard(tmp_path, shown) as view:
        view.delivered(a_batch(PANES))
    assert shown.messages[0].startswith("No dashboard: ")
