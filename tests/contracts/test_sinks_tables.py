"""Contract of sinks with tables: use existing ones, widen them if allowed, and dead-letter refused rows."""

import json
from pathlib import Path

import pytest

from strandline.errors import SinkError
from strandline.ports.ledger import Written
from strandline.ports.sinks import OpenSink
from tests.contracts.sinks import CREATED, entry, opened, pane, panes
from tests.contracts.stores import SqliteStore, Store


@pytest.mark.parametrize("rule", ["", ", PRIMARY KEY (window_end, team, window_start)"])
@pytest.mark.needs("evolve")
def test_an_existing_table_is_used_and_keeps_its_own_columns(store: Store, rule: str) -> None:
    store.make("totals", f"{CREATED}, note varchar(20) DEFAULT 'mine'{rule}")
    sink = opened(store, asked={"mode": "upsert"})
    epoch = sink.claim("mine")
    for batch, total in enumerate((5, 6)):
        sink.commit(panes(pane("red", total, batch)), entry(sink, batch, epoch=epoch))
    assert [(row["team"], row["total"], row["note"]) for row in store.read()] == [("red", 6, "mine")]
    sink.close()


@pytest.mark.needs("evolve")
def test_a_table_of_other_types_is_refused_with_the_difference(store: Store, sink: OpenSink) -> None:
    store.make(
        "totals",
        CREATED.replace("total bigint", "total varchar(9)").replace("team varchar(9)", "team double precision"),
    )
    with pytest.raises(SinkError, match="the table 'totals' does not fit the rows to write") as refused:
        sink.commit(panes(pane("red", 5)), entry(sink, 0))
    assert "team is double" in refused.value.detail
    assert "expected text" in refused.value.detail
    assert "expected integer" in refused.value.detail
    assert "evolve" not in refused.value.hint
    assert store.read() == []


@pytest.mark.needs("evolve")
def test_a_column_is_added_only_where_it_is_allowed(store: Store, sink: OpenSink) -> None:
    epoch = sink.claim("mine")
    sink.commit(panes(pane("red", 5)), entry(sink, 0, epoch=epoch))
    wider = panes(pane("red", 6, 1) | {"plays": 2})
    with pytest.raises(SinkError, match="does not fit") as refused:
        sink.commit(wider, entry(sink, 1, epoch=epoch))
    assert refused.value.detail == "plays (integer) is missing"
    assert "evolve=True" in refused.value.hint
    allowed = opened(store, asked={"evolve": True})
    assert allowed.commit(wider, entry(allowed, 1)).fresh
    assert [(row["total"], row["plays"]) for row in store.read()] == [(5, None), (6, 2)]
    assert [(row["total"], row["plays"]) for row in store.read("totals_now")] == [(6, 2)]
    allowed.close()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.needs("refuse")
def test_a_row_that_is_refused_is_a_dead_letter_and_the_others_are_written_once(store: Store, mode: str) -> None:
    store.make("totals", CREATED.replace("total bigint", "total bigint CHECK (total < 100)"))
    sink = opened(store, asked={"mode": mode})
    rows = [pane(f"team {number}", 1_000 if number in (3, 40, 41) else number) for number in range(50)]
    once = entry(sink, 0)
    assert sink.commit(panes(*rows), once) == Written(refused=3)
    assert not sink.commit(panes(*rows), once).fresh
    assert sorted(row["total"] for row in store.read()) == [number for number in range(50) if number not in (3, 40, 41)]
    letters = store.read("totals_dead")
    assert [row["reason"] for row in letters] == ["sink_refused"] * 3
    assert [json.loads(bytes(row["raw"]))["team"] for row in letters] == ["team 3", "team 40", "team 41"]
    assert all("check" in row["detail"].lower() for row in letters)
    assert len({row["id"] for row in letters}) == 3
    sink.close()


def test_a_database_that_cannot_be_opened_is_an_error_before_the_job_runs(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SinkError, match="cannot open .*scores.db") as refused:
        opened(SqliteStore(tmp_path / "file" / "scores.db"))
    assert refused.value.detail
    assert refused.value.hint == "check the path and its folder"


def test_a_file_that_is_not_a_database_is_refused_and_left_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are my notes, and they are longer than a header of SQLite would be\n" * 3)
    before = path.read_bytes()
    with pytest.raises(SinkError, match="cannot open .*notes.txt"):
        opened(SqliteStore(path))
    assert path.read_bytes() == before
