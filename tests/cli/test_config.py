"""Settings: sources, validation, masked secrets; and new projects."""

import json
from pathlib import Path
from typing import Any

import pytest

from strandline.cli.actions import run as running
from strandline.cli.actions.run import find
from strandline.cli.config import SETTINGS, Setting, settings
from strandline.cli.main import main
from strandline.errors import SetupError
from strandline.plan.pipeline import Pipeline


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(words)
    return int(ended.value.code or 0)


def test_settings_without_a_source_have_defaults(tmp_path: Path) -> None:
    found = settings(tmp_path, {})
    assert {each.source for each in found.all} == {"default"}
    assert found.value("run.every") == "0 seconds"
    assert found.options() == {}


def test_the_environment_overrides_the_file(tmp_path: Path) -> None:
    file = tmp_path / "strandline.toml"
    file.write_text('[run]\nname = "scores"\nmetrics_port = 9000\n[jobs]\nfolders = ["a", "b"]\n')
    found = settings(tmp_path, {"STRANDLINE_RUN_METRICS_PORT": "9100", "STRANDLINE_RUN_METRICS": "false"})
    assert {each.name: each.source for each in found.all if each.source != "default"} == {
        "run.name": str(file),
        "run.metrics": "STRANDLINE_RUN_METRICS",
        "run.metrics_port": "STRANDLINE_RUN_METRICS_PORT",
        "jobs.folders": str(file),
    }
    assert found.options() == {"name": "scores", "metrics": False, "metrics_port": 9_100}
    assert found.value("jobs.folders") == ["a", "b"]


def test_another_file_may_be_given(tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text('[run]\ncheckpoint = "/data"\n')
    assert settings(tmp_path, {"STRANDLINE_CONFIG": str(other)}).value("run.checkpoint") == "/data"
    with pytest.raises(SetupError, match="cannot be read"):
        settings(tmp_path, {"STRANDLINE_CONFIG": str(tmp_path / "nowhere.toml")})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[run]\ncheckpiont = "x"\n', "there is no setting run.checkpiont"),
        ("[run]\nmetrics_port = 99999\n", "run.metrics_port is 99999"),
        ('[run]\nmetrics = "perhaps"\n', "run.metrics is 'perhaps'"),
        ('[run]\nevery = "soon"\n', "run.every is 'soon'"),
        ('[jobs]\nfolders = "a"\n[run]\nname = ""\n', "run.name is ''"),
        ("[jobs]\nfolders = 3\n", "jobs.folders is 3"),
        ("[run]\npane_log = -1\n", "run.pane_log is -1"),
        ("run = 3\n", "run is not a table"),
        ("[run\n", "is not valid TOML"),
    ],
)
def test_an_invalid_setting_is_refused_with_its_source(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "strandline.toml"
    file.write_text(text)
    with pytest.raises(SetupError) as refused:
        settings(tmp_path, {})
    assert message in str(refused.value)
    assert str(file) in str(refused.value)


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        (Setting("registry.url", "https://me:s3cret@registry.example/v1", ""), "https://•••@registry.example/v1"),
        (Setting("sink.password", "s3cret", ""), "•••"),
        (Setting("run.name", "scores", ""), "scores"),
        (Setting("jobs.folders", ["a"], ""), ["a"]),
    ],
)
def test_no_secret_is_shown(setting: Setting, shown: Any) -> None:
    assert setting.shown == shown


def test_show_prints_every_setting_with_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STRANDLINE_REGISTRY", "http://me:s3cret@127.0.0.1:8081")
    assert run("config", "show", "--json") == 0
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert found.keys() == SETTINGS.keys()
    assert found["registry.url"] == {
        "name": "registry.url",
        "value": "http://•••@127.0.0.1:8081",
        "source": "STRANDLINE_REGISTRY",
    }
    assert run("config", "show") == 0
    message = capsys.readouterr().out
    assert "s3cret" not in message
    assert "run.metrics_port" in message


def test_a_run_without_a_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("run", "job.py") == 2
    assert "--checkpoint" in capsys.readouterr().err


def test_a_new_project_has_a_story_that_holds_a_config_and_a_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("init", "scores") == 0
    monkeypatch.chdir(tmp_path / "scores")
    assert run("play", "totals.story.yaml") == 0
    assert isinstance(find("pipeline.py"), Pipeline)
    assert run("explain", "pipeline.py:pipeline") == 0
    assert "sqlite('totals')" in capsys.readouterr().out
    assert run("explain", "pipeline.py", "--json") == 0
    output = json.loads(capsys.readouterr().out)
    assert (output["sources"], output["steps"][0]["keys"]) == (["files('events')"], ["team"])
    assert output["sinks"][0] == {"name": "sqlite('totals')", "delivery": "exactly_once", "keys": ["team"]}
    assert settings().options()["name"] == "scores"
    assert run("alarms", "test") == 0


def test_a_new_project_runs_as_it_is_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STRANDLINE_RUN_PANE_LOG", "7")
    assert run("init", "scores") == 0
    monkeypatch.chdir(tmp_path / "scores")
    started: list[dict[str, Any]] = []

    def run_pipeline(*_: Any, **options: Any) -> int:
        started.append(options)
        return 0

    monkeypatch.setattr(running, "remember", lambda *_: None)
    monkeypatch.setattr(running, "run_pipeline", run_pipeline)
    assert run("run", "pipeline.py", "--plain", "--every", "5 seconds") == 0
    (options,) = started
    assert {name: options[name] for name in ("checkpoint", "name", "alarms", "every", "pane_log")} == {
        "checkpoint": Path("checkpoint"),
        "name": "scores",
        "alarms": "alarms.toml",
        "every": "5 seconds",
        "pane_log": 7,
    }


@pytest.mark.parametrize("name", ["scores", "9lives", "a b"])
def test_a_project_is_created_only_in_an_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scores").mkdir()
    (tmp_path / "scores" / "file").touch()
    assert run("init", name) == 2
    assert capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_complete_commands(
    shell: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The shell is detected among the parent processes, and tests may have no shell among them.
    monkeypatch.setattr("shellingham.detect_shell", lambda: (shell, shell))
    assert run("--show-completion", shell) == 0
    assert "_STRANDLINE_COMPLETE" in capsys.readouterr().out
