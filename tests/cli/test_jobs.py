"""Jobs from the command line: listed, watched and controlled through their folders."""

import io
import json
import os
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from strandline.cli.main import main
from strandline.cli.watch_view import picture, sparks
from strandline.observe.job_requests import DRAIN, STOP, is_asked, take_back
from strandline.observe.known_jobs import remember
from strandline.observe.metrics.history import History, JobState
from strandline.observe.metrics.store import Store
from strandline.observe.metrics.tables import FILE, AlarmLine
from tests.observe.made import batch

PATIENCE = 60
LONG = 600_000
"""A heartbeat that stays fresh on a slow machine."""


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(words)
    return int(ended.value.code or 0)


def now() -> int:
    return time.time_ns() // 1_000_000


def output(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def job(folder: Path, state: JobState = JobState.RUNNING, batches: int = 3, problem: str = "") -> Store:
    """Write the folder of a job that appears to run in this process."""
    folder.mkdir(parents=True)
    (folder / "strandline.json").write_text(json.dumps({"lineage": "abc", "stages": "scan"}))
    store = Store(folder, folder.name)
    store.start(now())
    for number in range(batches):
        at = now() - 1_000 * (batches - number)
        store.add(batch(number, at, clock=at))
    store.alive(now() + LONG, state, problem)
    return store


def test_jobs_lists_every_job_below_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    running, failed = job(tmp_path / "one" / "scores"), job(tmp_path / "two", JobState.FAILED, problem="no disk")
    assert run("jobs", str(tmp_path), "--json") == 1, "one of them failed"
    found = {each["name"]: each for each in output(capsys)}
    assert (found["scores"]["state"], found["scores"]["batch"], found["scores"]["lag_records"]) == ("running", 2, 120)
    assert (found["two"]["state"], found["two"]["problem"]) == ("failed", "no disk")
    assert run("jobs", str(tmp_path)) == 1
    assert "scores" in capsys.readouterr().out
    running.close()
    failed.close()


@pytest.mark.slow
def test_jobs_searches_the_configured_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STRANDLINE_JOBS", str(tmp_path / "known.json"))
    job(tmp_path / "jobs" / "scores").close()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "strandline.toml").write_text('[jobs]\nfolders = ["jobs"]\n')
    assert run("jobs", "--json") == 0
    assert [each["name"] for each in output(capsys)] == ["scores"]
    job(tmp_path / "elsewhere" / "started from Python").close()
    remember(tmp_path / "elsewhere" / "started from Python")
    remember(tmp_path / "jobs" / "scores")
    assert run("jobs", "--json") == 0
    assert [each["name"] for each in output(capsys)] == ["scores", "started from Python"]
    assert run("jobs", str(tmp_path / "nowhere")) == 0
    assert "There are no jobs" in capsys.readouterr().out


def test_status_prints_metrics_verdicts_alarms_and_events(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = job(tmp_path / "scores")
    store.alarms([AlarmLine("lag_growing", "firing", now(), "the lag has grown", "add cores", 1)])
    assert run("status", str(tmp_path / "scores"), "--json") == 0
    found = output(capsys)
    assert found["job"]["state"] == "running"
    assert {each["number"] for each in found["verdicts"]} >= {"lag", "watermark", "latency", "state", "backpressure"}
    assert found["latest"]["counts"]["read"] == 1_000
    assert found["alarms"][0]["rule"] == "lag_growing"
    assert found["events"][0]["kind"] == "started"
    assert run("status", str(tmp_path / "scores")) == 0
    message = capsys.readouterr().out
    assert "1000 in = 990 contributed + 5 late + 3 dead letters + 2 filtered" in message
    assert "firing: lag_growing: the lag has grown" in message
    store.close()


def test_a_failed_job_has_an_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job(tmp_path / "scores", JobState.FAILED, problem="the disk is full").close()
    assert run("status", str(tmp_path / "scores")) == 1
    assert "the disk is full" in capsys.readouterr().out


def test_a_folder_without_a_job_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("status", "watch", "stop", "drain"):
        assert run(word, str(tmp_path)) == 2
        assert "there is no job in" in capsys.readouterr().err


def test_watch_prints_each_batch_until_the_job_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job(tmp_path / "scores", JobState.STOPPED).close()
    assert run("watch", str(tmp_path / "scores")) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "scores: stopped"
    assert run("watch", str(tmp_path / "scores"), "--json") == 0
    *batches, last = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sum(each["batches"] for each in batches) == 3
    assert last == {"job": "scores", "state": "stopped"}


def test_the_watch_panel_shows_metrics_and_bars(tmp_path: Path) -> None:
    store = job(tmp_path / "scores")
    with History(tmp_path / "scores") as history:
        console = Console(width=160, record=True, file=io.StringIO())
        console.print(picture(history, history.job()))
    shown = console.export_text()
    assert "backpressure" in shown
    assert "events/s" in shown
    store.close()


def test_bars_are_proportional_to_their_values() -> None:
    assert sparks([0, 1, 2, 4]) == "▁▃▅█"
    assert sparks([]) == ""
    assert sparks([0, 0]) == "▁▁"


@pytest.mark.parametrize(("word", "file"), [("stop", STOP), ("drain", DRAIN)])
def test_a_job_is_stopped_through_its_folder_and_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], word: str, file: str
) -> None:
    folder = tmp_path / "scores"
    store = job(folder)
    ended = JobState.STOPPED if word == "stop" else JobState.COMPLETE

    def obey() -> None:
        until = time.monotonic() + PATIENCE
        while not is_asked(folder, file) and time.monotonic() < until:
            time.sleep(0.01)
        take_back(folder, file)
        store.alive(now() + LONG, ended)

    worker = threading.Thread(target=obey)
    worker.start()
    assert run(word, str(folder), "--json", "--wait", str(PATIENCE)) == 0
    worker.join()
    assert output(capsys) == {"job": "scores", "asked": word, "state": ended.value, "problem": ""}
    store.close()


@pytest.mark.slow
def test_a_job_that_does_not_stop_has_an_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = job(tmp_path / "scores")
    assert run("stop", str(tmp_path / "scores"), "--wait", "0.3") == 1
    assert run("stop", str(tmp_path / "scores"), "--wait", "0") == 0
    assert "was asked to stop" in capsys.readouterr().out
    store.close()


def test_a_job_without_metrics_cannot_be_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "strandline.json").write_text("{}")
    assert run("stop", str(tmp_path)) == 2
    assert "writes no metrics" in capsys.readouterr().err


def test_alarms_are_shown_as_stored_or_by_other_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "scores"
    store = job(folder)
    assert run("alarms", "show", str(folder)) == 0
    assert "No alarm has been evaluated yet" in capsys.readouterr().out
    store.alarms([AlarmLine("lag_growing", "firing", now(), "the lag has grown", "add cores", 1)])
    assert run("alarms", "show", str(folder)) == 1
    assert "firing  lag_growing: the lag has grown. Hint: add cores" in capsys.readouterr().out
    rules = tmp_path / "alarms.toml"
    rules.write_text('rules = "named"\n[late_rate]\nshare = 0.001\nat_least = 1\nwait = "0s"\n')
    assert run("alarms", "show", str(folder), "--rules", str(rules), "--json") == 1
    assert [(each["rule"], each["state"]) for each in output(capsys)] == [("late_rate", "firing")]
    store.close()


def test_a_failed_job_has_a_firing_alarm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job(tmp_path / "scores", JobState.FAILED, problem="the disk is full").close()
    assert run("alarms", "show", str(tmp_path / "scores"), "--json") == 1
    assert [(each["rule"], each["text"]) for each in output(capsys)] == [("gone", "the disk is full")]


def test_a_test_alarm_reports_which_channels_accepted_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = tmp_path / "alarms.toml"
    rules.write_text('[[tell]]\ncommand = ["true"]\n[[tell]]\ncommand = ["/no/such/program"]\n')
    assert run("alarms", "test", str(rules), "--json") == 1
    assert [(each["told"], bool(each["problem"])) for each in output(capsys)] == [
        ("command true", False),
        ("command /no/such/program", True),
    ]
    rules.write_text("")
    assert run("alarms", "test", str(rules)) == 0
    assert "add [[tell]]" in capsys.readouterr().out


HOSTILE = "[/bold][red]\x1b[2Jevil\nname"


def test_markup_and_control_characters_in_job_texts_are_printed_as_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "strandline.json").write_text(json.dumps({"lineage": "abc", "stages": "scan"}))
    with closing(Store(folder, HOSTILE)) as store:
        store.start(now())
        store.add(batch(0, now(), clock=now()))
        store.alarms([AlarmLine(HOSTILE, "firing", now(), HOSTILE, HOSTILE, 1)])
        store.alive(now() + LONG, JobState.FAILED, HOSTILE)
    for command in (("jobs", str(tmp_path)), ("status", str(folder)), ("watch", str(folder)), ("stop", str(folder))):
        run(*command)
        printed = capsys.readouterr().out
        assert "\x1b" not in printed
        assert r"[/bold][red]\x1b[2Jevil" in printed
    run("alarms", "show", str(folder))
    assert "\x1b" not in capsys.readouterr().out
    with History(folder) as history:
        console = Console(width=160, file=io.StringIO(), force_terminal=True)
        console.print(picture(history, history.job()))
    assert "\x1b[2J" not in console.file.getvalue()  # type: ignore[attr-defined]


def test_an_unreadable_folder_does_not_hide_the_jobs_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a" / "secret").mkdir(parents=True)
    for name in ("b", "c"):
        job(tmp_path / name).close()
    stat, iterdir = os.stat, Path.iterdir

    def refuse(place: Any) -> None:
        if isinstance(place, str | Path) and Path(place).is_relative_to(tmp_path / "a") and place != tmp_path / "a":
            raise PermissionError(13, "Permission denied", str(place))

    def checked_stat(place: Any, *options: Any, **named: Any) -> os.stat_result:
        refuse(place)
        return stat(place, *options, **named)

    def checked_iterdir(folder: Path) -> Any:
        if folder == tmp_path / "a":
            raise PermissionError(13, "Permission denied", str(folder))
        return iterdir(folder)

    monkeypatch.setattr(os, "stat", checked_stat)
    monkeypatch.setattr(Path, "iterdir", checked_iterdir)
    assert run("jobs", str(tmp_path), "--json") == 0
    assert [each["name"] for each in output(capsys)] == ["b", "c"]


def test_a_job_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        job(tmp_path / name).close()
    with closing(sqlite3.connect(tmp_path / "a" / FILE)) as connection, connection:
        connection.execute("UPDATE about SET value = 'unknown' WHERE name = 'version'")
    assert run("jobs", str(tmp_path), "--json") == 0
    unreadable, readable = output(capsys)
    assert (unreadable["state"], readable["state"]) == ("unknown", "running")
    assert "another version" in unreadable["problem"]
    assert run("jobs", str(tmp_path)) == 0
    assert "another version" in capsys.readouterr().out
