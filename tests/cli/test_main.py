"""The command line: commands, options and error messages."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

from strandline.cli.main import main
from strandline.errors import SetupError


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(words)
    code = ended.value.code
    assert isinstance(code, int)
    return code


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A fake of the module that `strandline demo` calls."""
    module = ModuleType("strandline.cli.demo.demo")
    monkeypatch.setitem(sys.modules, "strandline.cli.demo.demo", module)
    return module


def failing(demo: ModuleType, error: BaseException) -> None:
    def fail(**options: object) -> None:
        raise error

    demo.run = fail  # type: ignore[attr-defined]


def test_the_version_is_the_one_of_the_installed_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("version") == 0
    assert capsys.readouterr().out == version("strandline") + "\n"


def test_the_version_is_printed_without_loading_spark_or_polars() -> None:
    program = """
import sys
from strandline.cli.main import main
try:
    main(["version"])
except SystemExit:
    print(sorted({"pyspark", "polars", "pandas", "pyarrow"} & set(sys.modules)))
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "[]"


def test_the_demo_gets_its_options(demo: ModuleType, tmp_path: Path) -> None:
    got: list[dict[str, object]] = []
    demo.run = lambda **options: got.append(options)  # type: ignore[attr-defined]
    assert run("demo") == 0
    assert (
        run("demo", "--seed", "3", "--events", "9", "--rate", "1", "--folder", str(tmp_path), "--plain", "--kafka") == 0
    )
    assert got == [
        {"seed": 7, "events": 15_000, "rate": 500, "folder": None, "plain": False, "kafka": False, "dashboard": True},
        {"seed": 3, "events": 9, "rate": 1, "folder": tmp_path, "plain": True, "kafka": True, "dashboard": False},
    ]


def test_an_error_of_ours_is_message_detail_and_hint(demo: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    failing(demo, SetupError("no [Java] here", detail="looked on PATH", hint="type: apt-get install java"))
    assert run("demo") == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == "error: no [Java] here\n  looked on PATH\n  hint: type: apt-get install java\n"


def test_an_error_prints_markup_and_control_characters_as_text(
    demo: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(demo, SetupError("no job [/bold]\x1b[2J", detail="line 1\nline 2\x07", hint="[red]\x1b]0;title"))
    assert run("demo") == 2
    assert capsys.readouterr().err == (
        "error: no job [/bold]\\x1b[2J\n  line 1\n    line 2\\x07\n  hint: [red]\\x1b]0;title\n"
    )


@pytest.mark.parametrize("words", [("--debug", "demo"), ("demo", "--debug")])
def test_debug_shows_the_traceback(
    demo: ModuleType, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    failing(demo, SetupError("no Java"))
    assert run(*words) == 2
    output = capsys.readouterr().err
    assert "Traceback (most recent call last)" in output
    assert output.endswith("error: no Java\n")


def test_an_unexpected_error_is_one_line_and_a_hint(demo: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    failing(demo, ValueError("first line\nsecond line"))
    assert run("demo") == 1
    assert capsys.readouterr().err == (
        "error: unexpected: ValueError: first line\n  hint: run again with --debug for the traceback\n"
    )


def test_an_interrupt_ends_with_the_shells_code(demo: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    failing(demo, KeyboardInterrupt())
    assert run("demo") == 130
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("words", [("demo", "--rate", "0"), ("demo", "--events", "many"), ("nonsense",)])
def test_invalid_arguments_end_with_exit_code_2(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*words) == 2
    output = capsys.readouterr().err
    assert "Error" in output
    assert "Traceback" not in output
