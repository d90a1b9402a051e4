"""./demo, ./bench and ./test: which Python they use, and what they start."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose PATH holds only what a test puts there, and whose programs print their arguments."""
    (tmp_path / "bin").mkdir()
    for tool in ("bash", "dirname", "env"):
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool) or tool)
    (tmp_path / "scripts").mkdir()
    for file in ("demo", "bench", "test", "scripts/python.sh"):
        shutil.copy(ROOT / file, tmp_path / file)
    for program in ("strandline", "python"):
        make(tmp_path / ".venv" / "bin" / program, f'[ "$1" != -c ] && echo {program} "$@"')
    return tmp_path


def make(program: Path, script: str) -> None:
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def start(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command, *rest = words
    environ = {"PATH": str(checkout / "bin")}
    return subprocess.run([checkout / command, *rest], env=environ, capture_output=True, text=True, check=False)


def test_a_shim_that_fails_is_skipped(checkout: Path) -> None:
    make(checkout / "bin" / "python3.13", "echo 'pyenv: python3.13: command not found' >&2; exit 127")
    make(checkout / "bin" / "python3.11", '[ "$1" = -c ] || echo system "$@"')
    ran = start(checkout, "demo", "--seed", "3")
    assert ran.stdout.splitlines() == ["system scripts/prepare.py --for-demo", "strandline demo --seed 3"]
    assert ran.stderr == ""


def test_the_environments_own_python_comes_first(checkout: Path) -> None:
    make(checkout / ".venv" / "bin" / "python", '[ "$1" = -c ] || echo own "$@"')
    assert start(checkout, "test", "tests").stdout.splitlines() == [
        "own scripts/prepare.py",
        "own scripts/check.py tests",
    ]


def test_a_benchmark_is_prepared_and_then_run(checkout: Path) -> None:
    make(checkout / ".venv" / "bin" / "python", '[ "$1" = -c ] || echo own "$@"')
    assert start(checkout, "bench", "windows", "--quick").stdout.splitlines() == [
        "own scripts/prepare.py",
        "strandline bench windows --quick",
    ]


@pytest.mark.parametrize("tier", [[], ["all"], ["campaign"]])
def test_the_whole_run_and_the_campaigns_ask_for_a_browser(checkout: Path, tier: list[str]) -> None:
    make(checkout / ".venv" / "bin" / "python", '[ "$1" = -c ] || echo own "$@"')
    prepared, _ = start(checkout, "test", *tier).stdout.splitlines()
    assert prepared == "own scripts/prepare.py --with-browser"


def test_the_fast_tier_asks_for_no_java(checkout: Path) -> None:
    make(checkout / ".venv" / "bin" / "python", '[ "$1" = -c ] || echo own "$@"')
    assert start(checkout, "test", "fast", "-x").stdout.splitlines() == [
        "own scripts/prepare.py --without-java",
        "own scripts/check.py fast -x",
    ]


def test_a_failed_preparation_ends_the_start_with_its_code(checkout: Path) -> None:
    make(checkout / "bin" / "python3", '[ "$1" = -c ] || exit 2')
    ran = start(checkout, "demo")
    assert ran.returncode == 2
    assert ran.stdout == ""


def test_a_machine_without_python_is_refused_with_the_command_that_installs_it(checkout: Path) -> None:
    make(checkout / "bin" / "apt-get", "exit 1")
    ran = start(checkout, "demo")
    assert ran.returncode == 2
    assert ran.stderr == (
        "error: Python 3.11 or newer was not found\n"
        "  type: sudo apt-get update && sudo apt-get install -y python3 python3-venv\n"
    )
