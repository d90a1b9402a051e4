"""Foreign text never controls the terminal: one module prints it, and every command prints through that module."""

import ast
import io
import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

import strandline.cli
from strandline.cli.actions.jobs import header, run_jobs, run_status
from strandline.cli.terminal import cell, indented, printable, safe_console, say, say_lines
from strandline.errors import RunError
from strandline.observe.metrics.history import JobState, JobView
from strandline.observe.metrics.store import Store
from strandline.redaction import logger

HOSTILE = "a\x1b[2J\x1b]0;pwned\x07\x9b31m\u202eb\rc\x08[bold]d[/bold]\nerror: forged"
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
OWN_STYLES = re.compile(r"\x1b\[[\d;]*m")
ALLOWED = ("json.dumps",)


def calls(path: Path) -> Iterator[ast.Call]:
    yield from (each for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, ast.Call))


def test_every_command_prints_through_one_module() -> None:
    root = Path(strandline.cli.__file__).parent
    found = []
    for path in sorted(root.rglob("*.py")):
        if path.name == "terminal.py":
            continue
        for each in calls(path):
            name = ast.unparse(each.func)
            first = ast.unparse(each.args[0].func) if each.args and isinstance(each.args[0], ast.Call) else ""
            keeps_ascii = "ensure_ascii" not in ast.unparse(each)
            if name in ("print", "sys.stdout.write", "sys.stderr.write", "Console", "traceback.print_exc"):
                if name == "print" and first in ALLOWED and keeps_ascii:
                    continue
                found.append(f"{path.relative_to(root)}:{each.lineno}: {name}")
    assert found == []


@given(st.text())
def test_a_printable_text_has_no_control_character(text: str) -> None:
    assert not CONTROLS.search(printable(text))
    assert "\n" not in printable(text)
    assert not CONTROLS.search(printable(text, keep_lines=True))
    assert printable(printable(text)) == printable(text)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_console_shows_foreign_text_in_any_renderable_as_it_is(is_terminal: bool) -> None:
    out = io.StringIO()
    console = safe_console(file=out, force_terminal=is_terminal, width=500, markup=False)
    table = Table()
    table.add_column(HOSTILE)
    table.add_row(HOSTILE, style="bold")
    for each in (HOSTILE, Text(HOSTILE, "red"), Text.assemble((HOSTILE, "bold")), table, cell(HOSTILE)):
        console.print(each)
    shown = OWN_STYLES.sub("", out.getvalue()) if is_terminal else out.getvalue()
    assert "\\x1b[2J" in shown
    assert not CONTROLS.search(shown)


def test_lines_that_are_printed_stay_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    say(HOSTILE)
    say_lines("one\n\ttwo\x1b[2J")
    out = capsys.readouterr().out
    assert out.count("\n") == 3
    assert not CONTROLS.search(out)
    assert "\nerror: forged" not in indented(HOSTILE)


def test_a_hostile_job_forges_no_line_of_jobs_and_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "strandline.json").write_text("{}")
    store = Store(folder, HOSTILE)
    store.start(1)
    store.event(2, HOSTILE, HOSTILE)
    store.alive(3, JobState.FAILED, HOSTILE)
    store.close()
    with closing(sqlite3.connect(folder / "metrics.db")) as database, database:
        database.execute("INSERT INTO alarms VALUES (?, 'firing', 1, ?, ?, 1)", (HOSTILE, HOSTILE, HOSTILE))
        database.execute("UPDATE runs SET host = ?", (HOSTILE,))
    run_status(folder, as_json=False)
    run_jobs([tmp_path], as_json=False)
    shown = capsys.readouterr().out
    assert "\\x1b[2J" in shown
    assert not CONTROLS.search(shown)
    assert not [line for line in shown.splitlines() if line.startswith("error: forged")]
    run_status(folder, as_json=True)
    assert not CONTROLS.search(capsys.readouterr().out)


def test_the_problem_of_a_job_is_indented() -> None:
    job = JobView("/c", "job", JobState.FAILED, "first\njob2  running")
    assert "\n    job2  running" in header(job, None).plain


def test_a_log_record_cannot_forge_another(caplog: pytest.LogCaptureFixture) -> None:
    logger("strandline.forged").warning("%s", RunError(HOSTILE))
    assert not CONTROLS.search(caplog.records[0].getMessage())
    assert "\nerror: forged" not in caplog.records[0].getMessage()


def test_json_escapes_what_a_terminal_would_obey() -> None:
    assert not CONTROLS.search(json.dumps(HOSTILE).replace("\x7f", ""))
