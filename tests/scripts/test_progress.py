"""Progress lines of steps, on a terminal and elsewhere."""

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


def test_a_note_stands_on_the_last_line() -> None:
    out = io.StringIO()
    with Step("packages", out) as step:
        step.note("from the cache")
    assert out.getvalue() == "ok    packages  0.0 s  from the cache\n"


def test_an_exception_marks_the_step_as_failed_and_propagates() -> None:
    out = io.StringIO()
    with pytest.raises(ValueError, match="broken"), Step("packages", out):
        raise ValueError("broken")
    assert out.getvalue().splitlines()[-1] == "FAIL  packages  0.0 s"


def test_a_long_step_shows_its_current_action(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_PRINT_FIRST_SECONDS", 0.01)
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


def test_an_interrupted_step_ends_its_command(tmp_path: Path) -> None:
    def interrupt(line: str) -> None:
        raise KeyboardInterrupt

    program = "import time; print('started', flush=True); time.sleep(60)"
    with pytest.raises(KeyboardInterrupt), Step("program", io.StringIO()) as step:
        step.run([sys.executable, "-c", program], cwd=tmp_path, on_line=interrupt)
    assert step.seconds < 30


LONG = "import time; time.sleep(600)"


def test_processes_left_behind_by_a_command_are_named_and_killed(tmp_path: Path) -> None:
    program = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {LONG!r}], start_new_session=True)"
    with Step("program", io.StringIO()) as step:
        ran = step.run([sys.executable, "-c", program], cwd=tmp_path)
    assert ran.code == 0
    assert [LONG in each for each in ran.left] == [True]


@pytest.mark.slow
def test_a_command_without_output_dumps_its_stacks_and_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_GRACE_SECONDS", 0.5)
    program = f"import faulthandler, signal; faulthandler.register(signal.SIGUSR1); print('one', flush=True); {LONG}"
    with Step("program", io.StringIO()) as step:
        ran = step.run([sys.executable, "-c", program], cwd=tmp_path, silence=2)
    assert ran.code != 0
    assert "No output for 2 s" in ran.output
    assert 'File "<string>", line 1 in <module>' in ran.output


@pytest.mark.slow
def test_a_command_with_output_may_run_longer_than_the_limit(tmp_path: Path) -> None:
    program = "import time\nfor _ in range(8): time.sleep(0.3); print('so', flush=True)"
    with Step("program", io.StringIO()) as step:
        ran = step.run([sys.executable, "-c", program], cwd=tmp_path, silence=2)
    assert (ran.code, ran.output, ran.left) == (0, "so\n" * 8, ())
