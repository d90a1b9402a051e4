"""`strandline state`: what a real job keeps, from its folder alone."""

import json
from typing import Any

import pytest

from strandline.cli.main import main
from tests.spark.damaged import FILES, TEAMS, Made, totals_of

pytestmark = pytest.mark.spark


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["state", *words])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def told(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert run(*words, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_how_much_is_kept_where_and_for_how_long_is_shown(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(made.put_back())
    shown = told(capsys, "show", folder)
    assert shown["batch"] == made.last
    (step,) = shown["steps"]
    assert step["rows"] == len(totals_of(range(FILES))) == len(TEAMS)
    assert step["keeps"] == "keeps total per key and window until 1h after the window's end"
    assert step["oldest"] == "2024-05-01 12:00:00.000Z"
    assert [each["key_group"] for each in step["key_groups"]] == [0, 1, 2, 3]
    assert sum(each["bytes"] for each in step["key_groups"]) == step["bytes"] > 0
    assert run("show", folder) == 0
    assert f"keyed 0: {len(TEAMS)} rows" in capsys.readouterr().out


def test_the_windows_of_a_key_and_over_an_instant_are_shown(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(made.put_back())
    (row,) = told(capsys, "show", folder, "--key", "red", "--window", "2024-05-01T12:00:59Z")["step_0"]
    assert (row["team"], row["total"]) == ("red", totals_of(range(FILES))["red", 0])
    assert told(capsys, "show", folder, "--step", "0", "--key", "nobody")["step_0"] == []
    assert run("show", folder, "--key", "red") == 0
    assert "red" in capsys.readouterr().out
    assert run("show", folder, "--step", "7") == 2
    assert run("show", folder, "--window", "noon") == 2
    assert run("show", str(made.root)) == 2


def test_state_is_asked_in_sql_also_that_of_an_earlier_batch(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(made.put_back())
    query = "SELECT team, minute(window_start) AS minute, total FROM step_0"
    for batch in (made.last, 1):
        rows = told(capsys, "sql", folder, query, "--batch", str(batch))
        assert {(row["team"], row["minute"]): row["total"] for row in rows} == totals_of(range(batch + 1))
    assert run("sql", folder, "SELECT count(*) AS windows FROM step_0") == 0
    assert capsys.readouterr().out == f"windows\n{len(TEAMS)}\n"
    assert run("sql", folder, "SELECT * FROM nowhere") == 2
    assert "tables: slices, step_0" in capsys.readouterr().err
