"""Kill a batch at each point of its delivery and deliver it again: what each delivery guarantee loses or repeats."""

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
import valkey as client

import strandline as sl
from strandline.services.service import Service

pytestmark = pytest.mark.slow

DELIVERING = """
import sys
import polars as pl
import strandline as sl
from strandline.kernel.output import Output
from strandline.plan.endpoints import Delivery
from strandline.plan.stages import Deliver
from strandline.spark.delivery.deliver import Retry, deliver
from strandline.ports.ledger import LedgerEntry

makers = {
    "sqlite": lambda path: sl.sqlite(path, table="totals"),
    "folder": sl.folder,
    "delta": sl.delta,
    "valkey": lambda url: sl.valkey(url, prefix="killed", key=["id"]),
}
definition, delivery = makers[sys.argv[3]](sys.argv[1]), Delivery(sys.argv[2])
sink = definition.open(Deliver(0, definition, delivery, None))
entry = LedgerEntry("mine", sink.claim("mine"), 0, "range", None, "at 1")
deliver(sink, delivery, Output(pl.DataFrame({"id": [1, 2, 3]})), entry, Retry())
"""


def deliver_once(place: Path | str, delivery: str, crash: str | None, sink: str = "sqlite") -> int:
    environment = {**os.environ, **({"STRANDLINE_CRASH": crash} if crash else {})}
    command = [sys.executable, "-c", DELIVERING, str(place), delivery, sink]
    return subprocess.run(command, env=environment, start_new_session=True, check=False).returncode


@pytest.mark.parametrize(
    ("delivery", "point", "times"),
    [
        ("exactly_once", "C9", 1),
        ("exactly_once", "C10", 1),
        ("at_least_once", "C9", 1),
        ("at_least_once", "C10", 2),
        ("at_most_once", "marked", 0),
        ("at_most_once", "C9", 0),
        ("at_most_once", "C10", 1),
    ],
)
def test_a_killed_and_repeated_batch_is_delivered_as_often_as_the_guarantee_says(
    tmp_path: Path, delivery: str, point: str, times: int
) -> None:
    database = tmp_path / "scores.db"
    assert deliver_once(database, delivery, f"{point}:1") == -signal.SIGKILL
    assert deliver_once(database, delivery, None) == 0
    with closing(sqlite3.connect(database)) as connection:
        there = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'totals'").fetchone()[0]
        found = connection.execute("SELECT id FROM totals ORDER BY id").fetchall() if there else []
    assert found == sorted([(1,), (2,), (3,)] * times)


@pytest.mark.parametrize("sink", ["folder", "delta"])
@pytest.mark.parametrize(
    ("delivery", "point", "times"),
    [("exactly_once", "C9", 1), ("exactly_once", "C10", 1), ("at_least_once", "C10", 2), ("at_most_once", "marked", 0)],
)
def test_the_same_holds_for_folders_and_delta_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delivery: str, point: str, times: int, sink: str
) -> None:
    if sink == "delta":
        pytest.importorskip("deltalake", reason='it needs "strandline[delta]"')
    place = tmp_path / "totals"
    assert deliver_once(place, delivery, f"{point}:1", sink) == -signal.SIGKILL
    monkeypatch.setattr(sys, "argv", ["", str(place), delivery, sink])
    exec(DELIVERING, {})  # the second time without a process of its own, which takes the longest
    assert ids(sink, place) == sorted([1, 2, 3] * times)


@pytest.mark.services
@pytest.mark.parametrize(
    ("delivery", "point", "found"),
    [("exactly_once", "C9", [1, 2, 3]), ("exactly_once", "C10", [1, 2, 3]), ("at_most_once", "marked", [])],
)
def test_the_same_holds_for_valkey(
    valkey: Service, monkeypatch: pytest.MonkeyPatch, delivery: str, point: str, found: list[int]
) -> None:
    with client.Valkey.from_url(valkey.address) as reader:
        reader.flushdb()
        assert deliver_once(valkey.address, delivery, f"{point}:1", "valkey") == -signal.SIGKILL
        assert bool(reader.keys("killed:*")) == (point == "C10")
        monkeypatch.setattr(sys, "argv", ["", valkey.address, delivery, "valkey"])
        exec(DELIVERING, {})
        assert sorted(int(key.removeprefix(b"killed:")) for key in reader.keys("killed:*")) == found


def ids(sink: str, place: Path) -> list[int]:
    if sink == "folder":
        rows = sl.read_manifested(place)
    else:
        from deltalake import DeltaTable  # noqa: PLC0415 - an extra

        rows = pl.DataFrame(DeltaTable(place).scan())
    return sorted(rows["id"].to_list()) if "id" in rows else []
