"""The recount detects wrong results of the job."""

import json
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from strandline.cli.demo.recount import Recount, recount
from strandline.connectors.scores import Scores, records, schedule

SOURCE = Scores(seed=3, events=800, rate=100)
ORIGIN = 1_700_000_000_000


def store(database: Path, statements: list[tuple[str, list[tuple[object, ...]]]]) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        for statement, rows in statements:
            connection.executemany(statement, rows) if rows else connection.execute(statement)


def expected_totals() -> tuple[Counter[tuple[str, str]], int]:
    """Return totals by team and window of five seconds, and the number of broken records, without the recount."""
    totals: Counter[tuple[str, str]] = Counter()
    broken = 0
    for partition in range(SOURCE.width):
        for record in records(SOURCE, partition, 0, len(schedule(SOURCE, partition)), ORIGIN):
            try:
                event = json.loads(record)
                day, clock = event["at"].removesuffix("Z").split("T")
                hour, minute, second = clock.split(":")
                start = f"{day} {hour}:{minute}:{int(float(second)) // 5 * 5:02}.000"
                totals[event["team"], start] += int(event["score"])
            except (ValueError, KeyError, AttributeError):
                broken += 1
    return totals, broken


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """The expected tables of a job: all events on time, but one total split between stream and late."""
    path = tmp_path / "scores.db"
    totals, broken = expected_totals()
    (team, start), total = totals.most_common(1)[0]
    rows: list[tuple[object, ...]] = [(*cell, value - (cell == (team, start))) for cell, value in totals.items()]
    store(
        path,
        [
            ("CREATE TABLE totals_now (team, window_start, total)", []),
            ("CREATE TABLE totals_late (team, window_start, score)", []),
            ("CREATE TABLE totals_dead (raw)", []),
            ("INSERT INTO totals_now VALUES (?, ?, ?)", rows),
            ("INSERT INTO totals_late VALUES (?, ?, ?)", [(team, start, 1)]),
            ("INSERT INTO totals_dead VALUES (?)", [(b"?",)] * broken),
        ],
    )
    assert total > 1
    assert broken > 0
    return path


def test_stream_and_late_together_agree_with_the_log(database: Path) -> None:
    result = recount(SOURCE, ORIGIN, database, 5)
    assert result.disagreements == []
    assert result.agrees
    assert sum(result.late.values()) == 1
    totals, broken = expected_totals()
    assert result.batch == totals
    assert result.unreadable == result.dead == broken


@pytest.mark.slow
@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE totals_now SET total = total + 1 WHERE rowid = 1",
        "DELETE FROM totals_now WHERE rowid = 1",
        "DELETE FROM totals_late",
        "DROP TABLE totals_late",
        "INSERT INTO totals_now VALUES ('green', '2024-05-01 12:00:00.000', 1)",
        "INSERT INTO totals_late SELECT * FROM totals_late",
    ],
)
def test_any_wrong_total_is_detected(database: Path, harm: str) -> None:
    store(database, [(harm, [])])
    result = recount(SOURCE, ORIGIN, database, 5)
    assert len(result.disagreements) == 1
    assert not result.agrees


@pytest.mark.parametrize("harm", ["DELETE FROM totals_dead WHERE rowid = 1", "DROP TABLE totals_dead"])
def test_a_missing_dead_letter_is_detected(database: Path, harm: str) -> None:
    store(database, [(harm, [])])
    result = recount(SOURCE, ORIGIN, database, 5)
    assert result.disagreements == []
    assert not result.agrees


def test_totals_of_a_team_are_summed_over_its_windows() -> None:
    cells = Counter({("red", "a"): 1, ("red", "b"): 2, ("blue", "a"): 4})
    result = Recount(cells, Counter(), cells, 0, 0)
    assert result.of_team(result.stream, "red") == 3
