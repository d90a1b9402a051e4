"""Dead letters in a SQLite file are read without writing to it, without its lock, and some at a time."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

import strandline as sl
from strandline.connectors.sql import read_only_sqlite
from strandline.connectors.sql.dead_letters import TableLetters
from strandline.dashboard.dead_letter_queries import LetterQuery
from strandline.dashboard.dead_letter_reader import LetterReader
from strandline.dashboard.graph import JobDefinition
from strandline.errors import SinkError
from strandline.kernel.dead_letters import PUBLIC

KINDS = {pl.Int64: "INTEGER", pl.Binary: "BLOB", pl.String: "TEXT"}
COLUMNS = ", ".join(f"{name} {KINDS[kind]}" for name, kind in PUBLIC.items())


def fill(path: Path, letters: int, size: int = 10) -> None:
    """A table of letters, in the mode that a file has by default."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"CREATE TABLE panes_dead ({COLUMNS})")
        names, at = "id, reason, detail, raw, first_seen", "2024-05-01 12:00:00.000"
        rows = ((f"letter {n:08}", "not JSON", f"{n} is wrong", b"x" * size, at) for n in range(letters))
        database.executemany(f"INSERT INTO panes_dead ({names}) VALUES (?, ?, ?, ?, ?)", rows)


def store(path: Path) -> TableLetters:
    return sl.sqlite(path).letters()


def test_reading_changes_no_byte_of_the_file_and_makes_none_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "panes.db"
    fill(path, 3)
    before = path.read_bytes()
    assert store(path).read().height == 3
    assert [page.height for page in store(path).pages()] == [3]
    assert store(path).begun() is None
    assert path.read_bytes() == before
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_file_that_may_not_be_written_is_read(mode: str, tmp_path: Path) -> None:
    fill(tmp_path / "panes.db", 3)
    with closing(sqlite3.connect(tmp_path / "panes.db")) as database:
        database.execute(f"PRAGMA journal_mode = {mode}")
    (tmp_path / "panes.db").chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        assert store(tmp_path / "panes.db").read().height == 3
    finally:
        tmp_path.chmod(0o700)


def test_a_job_commits_while_letters_are_read(tmp_path: Path) -> None:
    fill(tmp_path / "panes.db", 2_000)
    writer = sqlite3.connect(tmp_path / "panes.db", timeout=0, isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    pages = store(tmp_path / "panes.db").pages()
    found = next(pages).height
    for _ in pages:
        writer.execute("INSERT INTO panes_dead (id) VALUES ('new')")  # raises at once if the file is locked
        break
    with store(tmp_path / "panes.db")._reading() as database:
        assert database.execute("SELECT count(*) FROM panes_dead")[0][0] >= 2_000
        writer.execute("INSERT INTO panes_dead (id) VALUES ('newer')")
    writer.close()
    assert found == 200


def test_nothing_can_be_written_through_a_connection_for_reading(tmp_path: Path) -> None:
    fill(tmp_path / "panes.db", 1)
    with pytest.raises(SinkError, match="refused"), store(tmp_path / "panes.db")._reading() as database:
        database.execute("DELETE FROM panes_dead")


def test_a_query_that_a_foreign_file_makes_endless_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_only_sqlite, "_MOST_SECONDS", 0.2)
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) AS id FROM n"
    with closing(sqlite3.connect(tmp_path / "panes.db")) as database, database:
        database.execute(f"CREATE VIEW panes_dead AS {endless}")
    with pytest.raises(SinkError):
        store(tmp_path / "panes.db").read()


def test_marks_and_duplicates_are_known_across_pages(tmp_path: Path) -> None:
    fill(tmp_path / "panes.db", 450)
    letters = store(tmp_path / "panes.db")
    with closing(sqlite3.connect(tmp_path / "panes.db")) as database, database:
        database.execute("INSERT INTO panes_dead SELECT * FROM panes_dead WHERE id <= 'letter 00000009'")
        database.execute("CREATE TABLE strandline_redriven (letters, id, redrive, at)")
        database.execute("INSERT INTO strandline_redriven VALUES ('panes_dead', 'letter 00000400', 'r', '')")
    whole = letters.read()
    paged = pl.concat(letters.pages()).sort("id")
    assert paged.equals(whole.sort("id"))
    assert (paged.height, paged.filter(pl.col("state") == "redriven")["id"].to_list()) == (450, ["letter 00000400"])
    (one,) = letters.pages(id_="letter 00000007")
    assert one["id"].to_list() == ["letter 00000007"]


def test_a_job_folder_makes_the_dashboard_open_no_file_elsewhere(tmp_path: Path) -> None:
    job, far = tmp_path / "jobs" / "job", tmp_path / "private.db"
    job.mkdir(parents=True)
    fill(far, 1)
    fill(job / "own.db", 2)
    fill(job.parent / "near.db", 3)
    (job / "link.db").symlink_to(far)
    found = {}
    for path in (
        far,
        job / "own.db",
        job.parent / "near.db",
        job / "link.db",
        job / ".." / ".." / "private.db",
        Path("/dev/zero"),
    ):
        sink = {"is": "Sqlite", "path": str(path), "table": "panes"}
        known = JobDefinition(definition={"is": "Together", "outputs": [{"is": "Write", "sink": sink}]})
        answer = LetterReader(lambda _: None).letters(job, known, LetterQuery())
        found[path.name] = answer.total if answer.available else None
    assert found == {"private.db": None, "own.db": 2, "near.db": 3, "link.db": None, "zero": None}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of a process from /proc")
def test_many_letters_are_listed_in_bounded_memory(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    fill(tmp_path / "job" / "panes.db", 200_000, 500)
    program = f"""
from pathlib import Path
from strandline.dashboard.dead_letter_queries import LetterQuery, OpenedLetters
from strandline.dashboard.dead_letter_reader import LetterReader
from strandline.dashboard.graph import JobDefinition
import strandline as sl
def kilobytes(name):
    return int(Path("/proc/self/status").read_text().partition(name + ":")[2].split()[0])
job = Path({str(tmp_path / "job")!r})
opened = OpenedLetters([sl.sqlite(job / "panes.db").letters()])
reader = LetterReader(lambda _: opened)
Path("/proc/self/clear_refs").write_text("5")
before = kilobytes("VmRSS")
answer = reader.letters(job, JobDefinition(), LetterQuery(limit=100))
assert (answer.total, len(answer.letters), answer.letters[0].id) == (200_000, 100, "letter 00199999"), answer.total
print((kilobytes("VmHWM") - before) / 1024)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert float(ran.stdout) < 100, "MB"
