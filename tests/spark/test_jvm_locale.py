"""A file whose name has other letters than English ones is read, whatever the locale that a job was started in."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from strandline.spark.patches.jvm_locale import locale_of, utf8_file_names
from strandline.spark.patches.switch import is_on
from tests.spark_session import archive_if_there

pytestmark = pytest.mark.skipif(not is_on("jvm_locale"), reason="the patch is switched off")

_JOB = """
import sys
from pathlib import Path
import strandline as sl

here = Path(sys.argv[1])
COLUMNS = "team string, at timestamp"
games = (
    sl.read(sl.files(here / "in", sl.json(COLUMNS)))
    .event_time("at", sl.bounded(seconds=1))
    .key_by("team")
    .window(sl.tumbling(seconds=10))
    .aggregate(plays=sl.count())
)
alone = {"spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 {sys.argv[2]}".strip()}
job = games.write(sl.sqlite(here / "out.db", table="games")).run(checkpoint=here / "job", settings=alone)
job.drain()
assert job.await_end(120)
"""


@pytest.fixture
def locale(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize("said", [{}, {"LANG": "C"}, {"LC_ALL": "POSIX", "LANG": "de_DE.UTF-8"}, {"LC_CTYPE": "C"}])
def test_where_nobody_has_chosen_a_locale_any_name_can_be_said(
    locale: pytest.MonkeyPatch, said: dict[str, str]
) -> None:
    for name, value in said.items():
        locale.setenv(name, value)
    with utf8_file_names():
        assert locale_of(os.environ) == "C.UTF-8"
    assert os.environ.get("LC_ALL") == said.get("LC_ALL")


@pytest.mark.parametrize("name", ["LC_ALL", "LC_CTYPE", "LANG"])
def test_a_locale_that_was_chosen_stays(locale: pytest.MonkeyPatch, name: str) -> None:
    locale.setenv(name, "de_DE.ISO-8859-1")
    with utf8_file_names():
        assert locale_of(os.environ) == "de_DE.ISO-8859-1"
        assert os.environ.get("LC_ALL") == ("de_DE.ISO-8859-1" if name == "LC_ALL" else None)
    assert os.environ[name] == "de_DE.ISO-8859-1"


@pytest.mark.spark
def test_a_file_with_such_a_name_is_read_where_nobody_has_chosen_a_locale(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number, name in enumerate(["plain", "größe", "試合"]):
        line = f'{{"team": "{name}", "at": "2026-03-01T12:00:0{number}Z"}}\n'
        (tmp_path / "in" / f"{name}.jsonl").write_text(line, encoding="utf-8")
    known = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "LC_CTYPE", "LANG")}
    command = [sys.executable, "-c", _JOB, str(tmp_path), archive_if_there()]
    environ = known | {"LC_ALL": "POSIX", "PYTHONUTF8": "1"}
    ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=180)
    assert ran.returncode == 0, ran.stderr
    with sqlite3.connect(tmp_path / "out.db") as base:
        found = base.execute("SELECT team, plays FROM games ORDER BY team").fetchall()
    assert found == [("größe", 1), ("plain", 1), ("試合", 1)]
