"""`strandline dlq`: list, show, count, redrive and drop."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import Console

import strandline as sl
from strandline.cli.actions import dlq
from strandline.cli.actions.run import find
from strandline.cli.main import main
from strandline.letters.folder_redrive import Folder
from strandline.letters.store import Redrive
from strandline.ports.durable_files import write_once
from tests.contracts.test_letters import CLOCK, Place, letter

pytest_plugins = ["strandline.testing.services"]

JOB = """
import strandline as sl

totals = (
    sl.read(sl.files({source!r}, "team string, score long, at timestamp"))
    .write(sl.sqlite({database!r}, table="panes"))
)
nowhere = sl.read(sl.files({source!r}, "team string")).write(sl.discard())
"""
ROW = b'{"team":"red","score":7,"at":"2024-05-01T12:00:00.5Z"}'


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A pipeline over a folder, and three letters of it."""
    source, database = tmp_path / "in", tmp_path / "some.db"
    source.mkdir()
    file = tmp_path / "job.py"
    file.write_text(JOB.format(source=str(source), database=str(database)))
    known = {"source": f"files({str(source)!r})", "raw": ROW, "source_partition": f"{CLOCK}.0"}
    place = Place(sl.read(sl.files(source, "a string")).write(sl.sqlite(database, table="panes")).root)
    place.put(
        letter(0xA1, **known, reason="function_failed", step="map f", exception="ValueError", detail="[red]\x1b[31m"),
        letter(0xB2, **known),
        letter(0xC3, **{**known, "source": None}, reason="function_failed", step="aggregate n by team"),
    )
    return f"{file}:totals"


def strandline(*words: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(["dlq", *words])
    return int(left.value.code or 0)


def output(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    assert strandline(*words, "--json") == code
    return json.loads(capsys.readouterr().out)


def test_list_prints_letters_newest_first_without_control_characters(
    job: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert strandline("list", job) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.split(r"\s{2,}", lines[0]) == ["id", "first_seen", "reason", "step", "place", "state", "detail"]
    assert [line.split()[2] for line in lines[1:]] == ["function_failed", "undecodable", "function_failed"]
    assert lines[3].endswith(r"new    [red]\x1b[31m")
    assert "\x1b" not in "".join(lines)
    assert strandline("list", job, "--limit", "1", "--reason", "function_failed") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 more; raise --limit to see them"
    far = {"first_seen": 1, "source_partition": "x" * 90}
    Place(find(job).root).put(*(letter(each, **far, source_offset=9 - each) for each in (3, 1, 2)), batch=1)
    assert strandline("list", job, "--limit", "9") == 0
    places = [line.split()[4] for line in capsys.readouterr().out.splitlines()[-3:]]
    assert places == ["…" + ("x" * 90 + f":{number}")[-59:] for number in (8, 7, 6)]
    assert strandline("list", job, "--reason", "unheard_of") == 0
    assert capsys.readouterr().out == "no dead letters\n"


def test_list_is_a_table_on_a_terminal(
    job: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dlq, "safe_console", lambda: Console(force_terminal=True, width=160))
    assert strandline("list", job) == 0
    out = capsys.readouterr().out
    assert "\x1b[2m" in out  # the head is dim
    assert "[red]" in out


def test_show_prints_all_fields_of_a_letter_or_its_bytes(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    start = letter(0xB2)["id"]
    assert strandline("show", job, start) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if " " in line.strip())
    assert lines["reason"] == "undecodable"
    assert lines["first_seen"] == "2023-11-14T22:13:20.178Z"
    assert lines["raw"] == ROW.decode()
    assert output(capsys, "show", job, start)["raw"] == ROW.decode()
    assert strandline("show", job, start, "--raw") == 0
    assert capsys.readouterr().out == ROW.decode()
    assert strandline("show", job, "ffff") == 2
    assert "there is no letter ffff" in capsys.readouterr().err
    assert strandline("show", job, "0000") == 2
    assert "3 letters begin with 0000" in capsys.readouterr().err


def test_count_groups_by_a_field(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert strandline("count", job) == 0
    assert capsys.readouterr().out.splitlines() == [
        "reason           letters", "function_failed  2", "undecodable      1", "3 in total",
    ]  # fmt: skip
    assert output(capsys, "count", job, "--by", "step")["counts"]["map f"] == 1
    assert strandline("count", job, "--by", "colour") == 2


def test_redrive_writes_a_file_once_and_reports_letters_not_sent(
    job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    foreseen = output(capsys, "redrive", job, "--all", "--dry-run", code=1)
    assert [*(tmp_path / "in").iterdir()] == []
    report = output(capsys, "redrive", job, "--all", code=1)
    assert foreseen == {**report, "dry_run": True}
    assert report["sent"] == [letter(0xA1)["id"], letter(0xB2)["id"]]
    assert report["left"] == {letter(0xC3)["id"]: "it is a pane, not a record of a source"}
    (file,) = (tmp_path / "in").iterdir()
    assert file.name.startswith("redriven-")
    assert pl.read_parquet(file).select("team", "score", pl.col("at").dt.timestamp("ms")).rows() == [
        ("red", 7, 1_714_564_800_500), ("red", 7, 1_714_564_800_500),
    ]  # fmt: skip
    assert strandline("redrive", job, letter(0xA1)["id"]) == 1
    assert "1 not sent: it was redriven before" in capsys.readouterr().out
    assert output(capsys, "redrive", job, "--reason", "undecodable")["sent"] == []
    assert output(capsys, "count", job, "--by", "state")["counts"] == {"redriven": 2, "new": 1}
    assert len([*(tmp_path / "in").iterdir()]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["R1", "R3"])
def test_a_killed_redrive_leaves_one_file_after_a_repeat(
    job: str, tmp_path: Path, moment: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program = [sys.executable, "-c", "from strandline.cli.main import main; main()", "dlq", "redrive", job]
    killed = subprocess.run(
        [*program, "--reason", "undecodable"],
        env={**os.environ, "STRANDLINE_CRASH": moment},
        start_new_session=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert output(capsys, "count", job, "--by", "state")["counts"] == {"new": 3}
    report = output(capsys, "redrive", job, "--reason", "undecodable")
    assert (report["completed"], report["sent"]) == ([letter(0xB2)["id"]], [])
    (file,) = (tmp_path / "in").iterdir()
    assert pl.read_parquet(file).height == 1
    assert output(capsys, "count", job, "--by", "state")["counts"] == {"new": 2, "redriven": 1}


def test_drop_deletes_the_selected_letters_after_confirmation(
    job: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert strandline("drop", job) == 2
    assert "no letters to drop were selected" in capsys.readouterr().err
    assert strandline("drop", job, "--reason", "undecodable") == 2
    assert "1 letter would be deleted permanently" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda _: "n")
    assert strandline("drop", job, "--reason", "undecodable") == 1
    assert capsys.readouterr().out == "no letter was dropped\n"
    monkeypatch.setattr("builtins.input", lambda _: "y")
    assert strandline("drop", job, "--reason", "undecodable") == 0
    assert capsys.readouterr().out == "1 letter dropped\n"
    assert output(capsys, "drop", job, "--all", "--yes") == {"dropped": 2}
    assert output(capsys, "count", job)["letters"] == 0


def test_a_sink_without_letters_says_how_to_store_them(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert strandline("list", job.replace(":totals", ":nowhere")) == 2
    assert "discard() keeps no dead letters that can be queried" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["duckdb", "folder", pytest.param("postgres", marks=pytest.mark.services)])
def test_every_word_does_the_same_wherever_a_sink_keeps_its_letters(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, place = tmp_path / "in", str(tmp_path / "totals")
    source.mkdir()
    if kind == "postgres":
        place = f'"my totals", dsn={request.getfixturevalue("postgres").address!r}'
    sink = f"sl.{kind}({place})" if kind == "postgres" else f"sl.{kind}({place!r})"
    file = tmp_path / "job.py"
    file.write_text(JOB.format(source=str(source), database="").replace("sl.sqlite('', table=\"panes\")", sink))
    job = f"{file}:totals"
    known = {"source": f"files({str(source)!r})", "raw": ROW, "source_partition": f"{CLOCK}.0"}
    Place(find(job).root).put(letter(0xA1, **known), letter(0xB2, **known), letter(0xC3, **{**known, "source": None}))
    assert output(capsys, "count", job)["counts"] == {"undecodable": 3}
    assert [each["id"] for each in output(capsys, "list", job)] == [letter(each)["id"] for each in (0xC3, 0xB2, 0xA1)]
    assert output(capsys, "show", job, letter(0xB2)["id"])["first_seen"] == "2023-11-14T22:13:20.178Z"
    report = output(capsys, "redrive", job, letter(0xA1)["id"])
    assert (report["sent"], len([*source.iterdir()])) == ([letter(0xA1)["id"]], 1)
    assert output(capsys, "redrive", job, letter(0xA1)["id"], code=1)["sent"] == []
    assert len([*source.iterdir()]) == 1
    assert output(capsys, "drop", job, "--state", "redriven", "--yes") == {"dropped": 1}
    assert output(capsys, "count", job, "--by", "state")["counts"] == {"new": 2}


def folder_letters(**known: Any) -> pl.DataFrame:
    return pl.DataFrame([letter(1, **known)])


def test_a_row_goes_back_as_it_lies_in_its_file_also_where_the_letter_is_masked_or_changed(tmp_path: Path) -> None:
    rows = pl.DataFrame({"team": ["blue", "red"], "score": [1, 2]})
    rows.write_parquet(tmp_path / "first.parquet")
    folder = Folder("files", str(tmp_path), "parquet", {"team": "string", "score": "long"})
    masked = folder_letters(raw=None, masked="all", source_partition=f"file://{tmp_path}/first.parquet")
    assert folder.redrive_records(masked, Redrive("one", ()), None) == (letter(1)["id"],)
    back = pl.read_parquet(tmp_path / "redriven-one.parquet")
    assert back.rows() == [("red", 2, letter(1)["id"])]
    lost = masked.with_columns(pl.lit("gone").alias("source_partition"))
    assert folder.not_redrivable(lost) == {
        letter(1)["id"]: "its bytes are masked or cut, and its row cannot be found again"
    }
    short = folder_letters(raw=b'{"team": "red"}')
    assert folder.not_redrivable(short) == {letter(1)["id"]: "a step has removed its column 'score'"}


def test_lines_go_back_as_lines_under_a_name_that_the_source_reads(tmp_path: Path) -> None:
    folder = Folder("files", str(tmp_path), "txt", None, "*.csv", "team,score")
    folder.redrive_records(folder_letters(raw=b"red,\xff"), Redrive("one", ()), None)
    assert (tmp_path / "redriven-one.csv").read_bytes() == b"team,score\nred,\xff\n"
    (tmp_path / "redriven-one.csv").write_bytes(b"read already")
    folder.redrive_records(folder_letters(raw=b"red,\xff"), Redrive("one", ()), None)
    assert (tmp_path / "redriven-one.csv").read_bytes() == b"read already"
    id_ = letter(1)["id"]
    assert Folder("f", str(tmp_path), "txt", None, "in-*").not_redrivable(folder_letters()) == {
        id_: "the source reads files named in-* only"
    }
    assert (
        "is not a folder on this machine" in Folder("f", "s3://b/in", "txt", None).not_redrivable(folder_letters())[id_]
    )
    assert "its bytes are masked or cut" in folder.not_redrivable(folder_letters(masked="fields"))[id_]


def test_a_file_that_another_redriver_has_just_written_is_not_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "redriven-one.txt"
    write_once(path, b"theirs", 0o644)
    before = _written(path)
    write_once(path, b"mine", 0o644)

    def no_links(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", no_links)
    write_once(path, b"mine", 0o644)
    assert (path.read_bytes(), _written(path)) == (b"theirs", before)
    write_once(tmp_path / "other.txt", b"mine", 0o644)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["other.txt", "redriven-one.txt"]


def _written(path: Path) -> tuple[int, int, int]:
    """Which file it is, and when it was written; when it was read may change."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_mode


def test_orc_is_written_as_orc(tmp_path: Path) -> None:
    from pyarrow import orc  # noqa: PLC0415

    folder = Folder("files", str(tmp_path), "orc", {"team": "string"})
    folder.redrive_records(folder_letters(raw=b'{"team": "red"}'), Redrive("one", ()), None)
    assert orc.read_table(tmp_path / "redriven-one.orc")["team"].to_pylist() == ["red"]
