"""The checks: commands, output and exit codes."""

import sys
from pathlib import Path

import check
import progress
import pytest
from progress import Ran

GOOD = "def test_good():\n    assert True\n"
BAD = "def test_bad():\n    assert 1 == 2\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small repository with one good test, to be checked without linters."""
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\nmarkers = ["spark", "campaign"]\n')
    (tmp_path / "test_story.py").write_text(GOOD)
    monkeypatch.setattr(check, "ROOT", tmp_path)
    monkeypatch.setattr(check, "STATIC", {"lint": ("python", "-c", "pass")})
    monkeypatch.setattr(check, "BEFORE_SPARK", {})
    monkeypatch.setattr(check, "coverage", lambda: check.Result("coverage", True, 0.1, "91.0 %\n   10.0 %  a.py"))
    return tmp_path


@pytest.fixture
def programs(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake pytest that prints its arguments and finds no tests, and a fake linter that fails."""
    folder = project / "bin"
    folder.mkdir()
    for name, script in {"pytest": 'echo "$@"; exit 5', "ruff": "echo a line is too long; exit 1"}.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setattr(check, "PROGRAMS", folder)
    monkeypatch.setattr(check, "STATIC", {"lint": ("ruff", "check")})
    return folder


@pytest.mark.slow
def test_the_last_line_is_pytests_own(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main(["all", "-p", "no:cacheprovider"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "1 passed in" in lines[-1]
    assert sum("1 passed in" in line for line in lines) == 1
    assert any(line.split()[:2] == ["ok", "tests"] for line in lines)


@pytest.mark.slow
def test_a_failing_test_is_reported_and_fails_the_run(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "test_story.py").write_text(GOOD + BAD)
    assert check.main([]) == 1
    output = capsys.readouterr().out
    assert "FAILURES" in output
    assert "assert 1 == 2" in output
    assert "test_good PASSED" not in output
    assert "1 failed, 1 passed, 1 rerun in" in output.splitlines()[-1]


@pytest.mark.slow
def test_a_test_that_passes_only_when_repeated_is_named(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flaky = "from pathlib import Path\ndef test_flaky():\n    seen = Path('seen').exists()\n    Path('seen').touch()\n"
    (project / "test_story.py").write_text(f"{GOOD}{flaky}    assert seen\n")
    assert check.main([]) == 0
    output = capsys.readouterr().out
    assert "repeated, fix these:" in output
    assert "test_story.py::test_flaky" in output
    assert "2 passed, 1 rerun in" in output.splitlines()[-1]


def test_a_failing_check_is_shown_and_the_tests_still_run(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main([]) == 1
    output = capsys.readouterr().out
    assert "a line is too long" in output
    assert "-m not campaign" in output


def test_the_fast_tier_leaves_spark_out(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check.main(["fast"])
    assert "-m not spark and not services and not slow and not campaign" in capsys.readouterr().out


def test_a_tier_without_any_test_fails(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "STATIC", {})
    assert check.main(["fast"]) == 1


def test_missing_campaigns_are_not_a_failure(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main(["campaign", "-k", "soak"]) == 0
    assert "there are no campaigns yet" in capsys.readouterr().out


def test_only_campaigns_and_the_tier_of_coverage_measure_coverage(
    programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for tier, measured in {"all": False, "fast": False, "coverage": True, "campaign": True}.items():
        check.main([tier])
        output = capsys.readouterr().out
        assert ("--cov --cov-report=" in output) == measured, tier
        assert ("91.0 %" in output) == measured, tier


def test_other_arguments_go_to_pytest(programs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert check.main(["tests/kernel", "-k", "early"]) == 5
    assert capfd.readouterr().out == "tests/kernel -k early\n"


def test_help_lists_the_tiers(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main(["--help"]) == 0
    assert "./test fast" in capsys.readouterr().out


def test_a_line_of_pytest_becomes_the_progress() -> None:
    line = "[gw1] [ 12%] PASSED tests/cli/test_main.py::test_it[a b] "
    assert check.where(line) == "12% test_main.py::test_it[a b]"
    assert check.where("collecting ... collected 3 items") == ""


def test_a_report_without_failures_is_shown_whole() -> None:
    assert check.split_report(Ran(4, "ERROR: no such file\n\n== no tests ran in 0.00s ==\n")) == (
        "ERROR: no such file\n",
        "== no tests ran in 0.00s ==",
    )


def test_the_programs_are_those_of_this_environment() -> None:
    assert Path(sys.executable).parent == check.PROGRAMS


@pytest.mark.slow
def test_processes_left_by_tests_are_listed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "test_story.py").write_text(
        "import os\ndef test_careless():\n    if os.fork() == 0:\n        os.execlp('sleep', 'sleep', '600')\n"
    )
    assert check.main(["fast"]) == 0
    output = capsys.readouterr().out
    assert "left running and killed, fix these:" in output
    assert "  sleep 600" in output


@pytest.mark.slow
@pytest.mark.parametrize(("good", "code"), [(GOOD, 0), (GOOD + BAD, 1)], ids=["passed", "failed"])
def test_a_hang_after_passed_tests_is_a_pass_with_stack_traces(
    good: str, code: int, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "test_story.py").write_text(good)
    (project / "conftest.py").write_text(
        "import atexit, faulthandler, signal, time\n"
        "def pytest_configure(config):\n"
        "    faulthandler.register(signal.SIGUSR1)\n"
        "    atexit.register(time.sleep, 600)\n"
    )
    monkeypatch.setitem(check.SILENCE_SECONDS, "fast", 15)
    monkeypatch.setattr(progress, "_GRACE_SECONDS", 1)
    assert check.main(["fast", "--numprocesses", "0"]) == code
    output = capsys.readouterr().out
    assert "most recent call first" in output
    assert ("pytest reported its result and did not exit" in output) is (code == 0)
    assert "1 passed" in output.splitlines()[-1]
