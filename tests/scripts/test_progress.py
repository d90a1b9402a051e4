"""One line for each step, on a terminal and elsewhere."""

import io
import sys
from pathlib import Path

import progress
import pytest
from progress import Step


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_short_step_is_one_line() -> None:
    out = io.StringIO()
    with Step("packages", out):
        pass
    assert out.getvalue() == "ok    packages  0.0 s\n"


def test_an_exception_marks_the_step_as_failed_and_goes_on() -> None:
    out = io.StringIO()
    with pytest.raises(ValueError, match="broken"), Step("packages", out):
        raise ValueError("broken")
    assert out.getvalue().splitlines()[-1] == "FAIL  packages  0.0 s"


def test_a_long_step_says_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_TELL_FIRST_SECONDS", 0.01)
    out = io.StringIO()
    with Step("packages", out) as step:
        step.doing("3 of 57: numpy")
        while "numpy" not in out.getvalue():
            pass
    assert "...   packages  3 of 57: numpy  0 s\n" in out.getvalue()


def test_a_terminal_line_is_repainted_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    with Step("packages", out):
        pass
    assert out.getvalue().endswith("\r\x1b[K\x1b[32mok  \x1b[0m  packages  0.0 s\n")


def test_a_command_is_read_line_by_line(tmp_path: Path) -> None:
    seen: list[str] = []
    program = "import sys; print('one'); print('two', file=sys.stderr); sys.exit(3)"
    with Step("program", io.StringIO()) as step:
        ran = step.run([sys.executable, "-u", "-c", program], cwd=tmp_path, on_line=seen.append)
    assert (ran.code, ran.output) == (3, "one\ntwo\n")
    assert seen == ["one", "two"]


def test_an_interrupted_step_takes_its_command_with_it(tmp_path: Path) -> None:
    def interrupt(line: str) -> None:
        raise KeyboardInterrupt

    program = "import time; print('started', flush=True); time.sleep(60)"
    with pytest.raises(KeyboardInterrupt), Step("program", io.StringIO()) as step:
        step.run([sys.executable, "-c", program], cwd=tmp_path, on_line=interrupt)
    assert step.seconds < 30
