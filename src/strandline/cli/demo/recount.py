"""Compute the demo's totals again from the whole log, as a batch job that shares no code with the pipeline."""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from strandline.connectors.scores import Scores, records

Cell = tuple[str, str]
"""A team, and the start of a window as it is written in the tables."""


@dataclass(frozen=True, slots=True)
class Recount:
    """For each team and window: the stream's last total, the total of late events, and the batch job's total."""

    stream: Counter[Cell]
    late: Counter[Cell]
    batch: Counter[Cell]
    dead: int
    unreadable: int

    @property
    def disagreements(self) -> list[Cell]:
        """The cells where the totals of stream and late events do not add up to the batch job's."""
        cells = self.stream.keys() | self.late.keys() | self.batch.keys()
        return sorted(cell for cell in cells if self.stream[cell] + self.late[cell] != self.batch[cell])

    @property
    def agrees(self) -> bool:
        return not self.disagreements and self.dead == self.unreadable

    def of_team(self, totals: Counter[Cell], team: str) -> int:
        return sum(total for (name, _), total in totals.items() if name == team)


def recount(source: Scores, origin: int, database: Path, seconds: int) -> Recount:
    """Compare what the job wrote with a batch job over every record of the generator."""
    return recount_log(every_record(source, origin), database, seconds)


def every_record(source: Scores, origin: int) -> Iterator[bytes]:
    """Return every record of a stream that started at `origin`."""
    for partition in range(source.width):
        yield from records(source, partition, 0, source.events, origin)


def recount_log(log: Iterable[bytes], database: Path, seconds: int) -> Recount:
    """Compare what the job wrote with a batch job over a log."""
    batch, unreadable = _from_log(log, seconds)
    with closing(sqlite3.connect(database)) as connection:
        stream = _totals(connection, "SELECT team, window_start, total FROM totals_now")
        late = _totals(connection, "SELECT team, window_start, sum(score) FROM totals_late GROUP BY 1, 2")
        dead = _count(connection, "totals_dead")
    return Recount(stream, late, batch, dead, unreadable)


def _from_log(log: Iterable[bytes], seconds: int) -> tuple[Counter[Cell], int]:
    totals: Counter[Cell] = Counter()
    unreadable = 0
    for record in log:
        try:
            event = json.loads(record)
            at = datetime.fromisoformat(event["at"]).timestamp()
            start = datetime.fromtimestamp(at // seconds * seconds, datetime.fromisoformat(event["at"]).tzinfo)
            totals[event["team"], start.strftime("%Y-%m-%d %H:%M:%S.000")] += int(event["score"])
        except (ValueError, KeyError):
            unreadable += 1
    return totals, unreadable


def _totals(connection: sqlite3.Connection, query: str) -> Counter[Cell]:
    try:
        return Counter({(team, start): total for team, start, total in connection.execute(query)})
    except sqlite3.OperationalError:  # the sink creates the table with its first row
        return Counter()


def _count(connection: sqlite3.Connection, table: str) -> int:
    found = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = ?", [table]).fetchone()[0]
    return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]) if found else 0  # noqa: S608 - a constant name
