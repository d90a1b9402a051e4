"""`strandline play`: output and exit codes."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from strandline.cli.actions.play import run
from strandline.cli.main import app
from strandline.errors import InvalidStory, Unsupported

HOLDS = """
story: it holds
steps:
  - input: [{at: 1s, value: 1}]
  - drain:
  - expect: [{values: [1]}]
"""
FAILS = """
story: it does not hold
pipeline: {aggregate: {total: {sum: v}}}
steps:
  - input: [{at: 1s, v: 1}]
  - drain:
  - expect: [{total: 2}]
"""
BROKEN = "story: it cannot be read\nsteps:\n  - inptu: []\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "good.story.yaml").write_text(HOLDS)
    (tmp_path / "other.yaml").write_text("a: 1")
    return tmp_path


def test_stories_that_hold_take_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([folder], "reference", as_json=False) == 0
    assert capsys.readouterr().out == "1 story held\n"


def test_a_story_that_does_not_hold_shows_expected_got_and_step(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = folder / "bad.story.yaml"
    file.write_text(FAILS)
    assert run([folder, file], "reference", as_json=False) == 1
    assert capsys.readouterr().out.splitlines()[:7] == [
        "it does not hold: fails",
        f"{file}:7: step 3: expected 1 pane, got 1 pane",
        "  expected",
        "    - {total: 2}",
        "  got",
        "    + {key: k, window: global, total: 1, timing: on_time, index: 0, last: true}",
        "  {total: 2}: total is 1, expected 2",
    ]


def test_how_many_did_not_hold_is_the_last_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "bad.story.yaml").write_text(f"{FAILS}---{HOLDS}")
    run([folder], "reference", as_json=False)
    assert capsys.readouterr().out.splitlines()[-1] == "1 of 3 stories did not hold"


def test_an_unreadable_story_is_reported_and_the_others_are_played(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "broken.story.yaml").write_text(BROKEN)
    assert run([folder], "reference", as_json=False) == 2
    printed = capsys.readouterr().out
    assert "broken.story.yaml:3: found {'inptu': []}, expected a step" in printed
    assert printed.splitlines()[-1] == "1 story held, 1 unreadable"


def test_json_holds_everything(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "bad.story.yaml").write_text(FAILS)
    (folder / "broken.story.yaml").write_text(BROKEN)
    assert run([folder], "reference", as_json=True) == 2
    printed = json.loads(capsys.readouterr().out)
    assert printed["on"] == "reference"
    assert {story["story"]: story["ok"] for story in printed["stories"]} == {
        "it holds": True,
        "it does not hold": False,
    }
    (failure,) = printed["stories"][0]["failures"]
    assert failure["step"] == 3
    assert failure["expected"] == ["- {total: 2}"]
    assert "broken.story.yaml" in printed["unreadable"][0]["file"]


def test_a_terminal_gets_colours(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "bad.story.yaml").write_text(FAILS)
    (folder / "broken.story.yaml").write_text(BROKEN)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert run([folder], "reference", as_json=False) == 2
    printed = capsys.readouterr().out
    assert "- {total: 2}" in printed
    assert "unreadable: " in printed
    assert "1 of 2 stories did not hold, 1 unreadable" in printed


def test_a_folder_without_stories_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidStory, match="no story in this folder"):
        run([tmp_path], "reference", as_json=False)


def test_an_unknown_player_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="there is no player 'orchestra'"):
        run([tmp_path / "none"], "orchestra", as_json=False)


def test_the_command_is_there(folder: Path) -> None:
    result = CliRunner().invoke(app, ["play", str(folder), "--on", "reference"])
    assert (result.exit_code, result.output) == (0, "1 story held\n")
