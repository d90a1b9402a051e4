"""Contract of sinks that refuse rows: no row, key or count of bad rows stops a job for good; a wrong table does."""

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import polars as pl
import psycopg
import pytest

import strandline as sl
from strandline.connectors.sql import isolate_bad_rows
from strandline.connectors.sql import sink as sql_sink
from strandline.errors import SinkError
from strandline.plan.endpoints import Delivery
from strandline.plan.stages import Deliver
from strandline.ports.ledger import Written
from strandline.ports.sinks import OpenSink
from strandline.services.service import Service
from tests.contracts.sinks import CREATED, entry, late, opened, pane, panes
from tests.contracts.stores import PostgresStore, SqliteStore, Store

pytest_plugins = ["strandline.testing.services"]

PICKY = CREATED.replace("varchar(9)", "text").replace("total bigint", "total bigint CHECK (total < 2000)")
BAD = 5_000
"""A total that the table refuses."""
LEAST = 60
"""The number of refused rows after which an empty table is wrong, here."""


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge a table by few rows: every refused row costs DuckDB a transaction."""
    monkeypatch.setattr(isolate_bad_rows, "FIRST_REFUSED", 10)
    monkeypatch.setattr(isolate_bad_rows, "LEAST", LEAST)
    monkeypatch.setattr(sql_sink, "LEAST", LEAST)


@pytest.mark.usefixtures("few")
@pytest.mark.slow
@pytest.mark.needs("refuse")
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_bad_rows_that_come_first_do_not_stop_the_job(store: Store, mode: str) -> None:
    store.make("totals", PICKY)
    sink = opened(store, asked={"mode": mode})
    bad = [pane(f"a {number:04}", BAD) for number in range(25)]
    good = [pane(f"b {number:04}", number) for number in range(200)]
    once = entry(sink, 0)
    assert sink.commit(panes(*bad, *good), once) == Written(refused=25)
    assert not sink.commit(panes(*bad, *good), once).fresh
    assert sorted(row["total"] for row in store.read()) == [*range(200)]
    assert len(store.read("totals_dead")) == 25
    sink.close()


@pytest.mark.usefixtures("few")
@pytest.mark.slow
@pytest.mark.needs("refuse")
def test_a_batch_of_bad_rows_alone_becomes_dead_letters(store: Store) -> None:
    store.make("totals", PICKY)
    sink = opened(store)
    epoch = sink.claim("mine")
    bad = panes(*(pane(f"team {number}", BAD) for number in range(30)))
    assert sink.commit(bad, entry(sink, 0, epoch=epoch)) == Written(refused=30)
    assert sink.commit(panes(pane("red", 1)), entry(sink, 1, epoch=epoch)) == Written()
    many = panes(*(pane(f"team {number}", BAD) for number in range(LEAST + 20)))
    assert sink.commit(many, entry(sink, 2, epoch=epoch)) == Written(refused=LEAST + 20)
    assert [row["total"] for row in store.read()] == [1]
    assert len(store.read("totals_dead")) == LEAST + 50
    sink.close()


@pytest.mark.usefixtures("few")
@pytest.mark.slow
@pytest.mark.needs("refuse")
def test_a_table_that_has_never_accepted_a_row_stops_the_job_unless_asked(store: Store) -> None:
    store.make("totals", CREATED.replace("total bigint", "total bigint CHECK (total < 0)"))
    rows = panes(*(pane(f"{number}", number) for number in range(LEAST + 30)))
    sink = opened(store)
    with pytest.raises(SinkError, match=r"the table 'totals' is empty, and refused each of \d+ rows") as refused:
        sink.commit(rows, entry(sink, 0))
    assert 'on_refused="continue"' in refused.value.hint
    assert (store.read(), store.read("totals_dead")) == ([], [])
    sink.close()
    sink = opened(store, asked={"on_refused": "continue"})
    assert sink.commit(rows, entry(sink, 0)) == Written(refused=LEAST + 30)
    assert len(store.read("totals_dead")) == LEAST + 30
    sink.close()


@pytest.mark.usefixtures("few")
@pytest.mark.slow
@pytest.mark.needs("refuse")
def test_a_wrong_table_is_told_over_small_batches_too(store: Store) -> None:
    store.make("totals", CREATED.replace("total bigint", "total bigint CHECK (total < 0)"))
    sink = opened(store)
    epoch, each = sink.claim("mine"), 25
    rows = panes(*(pane(f"{number}", number) for number in range(each)))
    for batch in range(2):
        assert sink.commit(rows, entry(sink, batch, epoch=epoch)) == Written(refused=each)
    with pytest.raises(SinkError, match="refused each of 75 rows"):
        sink.commit(rows, entry(sink, 2, epoch=epoch))
    assert len(store.read("totals_dead")) == 2 * each
    sink.close()


@pytest.mark.slow
@pytest.mark.needs("refuse")
def test_a_refused_row_may_hold_a_date_that_python_cannot(store: Store) -> None:
    """The year is 10183, which Python's calendar does not have."""
    store.make("totals", CREATED.replace("total bigint", "total bigint CHECK (total < 2000), day date"))
    sink = opened(store)
    rows = panes(pane("red", BAD), pane("blue", 1))
    assert rows.panes is not None
    days = pl.Series("day", [3_000_000, 0]).cast(pl.Date)
    done = sink.commit(replace(rows, panes=rows.panes.with_columns(days)), entry(sink, 0))
    assert done == Written(refused=1)
    (letter,) = store.read("totals_dead")
    assert json.loads(bytes(letter["raw"]))["day"] == "3000000 days since 1970-01-01"
    sink.close()


def test_a_table_that_rolls_back_by_itself_is_told(tmp_path: Any) -> None:
    store = SqliteStore(tmp_path / "scores.db")
    store.make("totals", PICKY + ", UNIQUE (team) ON CONFLICT ROLLBACK")
    sink = opened(store)
    with pytest.raises(SinkError, match="ends the whole transaction") as refused:
        sink.commit(panes(pane("red", 1), pane("red", 2, 1)), entry(sink, 0))
    assert "ON CONFLICT ROLLBACK" in refused.value.hint
    sink.close()


@pytest.fixture
def server(postgres: Service) -> Iterator[PostgresStore]:
    found = PostgresStore(postgres.address)
    yield found
    found.close()


def written(store: PostgresStore, sink: OpenSink, *rows: Any) -> tuple[list[str], list[str]]:
    """Write a batch; return the teams in the table, and the details of the dead letters."""
    done = sink.commit(panes(*rows), entry(sink, 0))
    letters = [row["detail"] for row in store.read("totals_dead")]
    assert done == Written(refused=len(letters))
    return sorted(row["team"] for row in store.read()), letters


@pytest.mark.services
def test_a_key_that_is_too_long_for_an_index_is_a_dead_letter(server: PostgresStore) -> None:
    """SQLSTATE 54000, program_limit_exceeded. Random text, since the index compresses its entries."""
    long = "".join(chr(33 + number * number * 7919 % 1_000_003 % 90) for number in range(20_000))
    sink = opened(server, asked={"mode": "upsert"})
    teams, letters = written(server, sink, pane("red", 1), pane(long, 2), pane("blue", 3))
    sink.close()
    assert teams == ["blue", "red"]
    assert "index row" in letters[0]


@pytest.mark.services
@pytest.mark.parametrize("state", ["P0001", "54000", "42501", "0A000", "XX000", "22021", "UR001"])
def test_a_row_that_a_trigger_refuses_is_a_dead_letter_whatever_its_state(server: PostgresStore, state: str) -> None:
    server.make("totals", PICKY)
    server._reader.execute(
        f"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.team = 'bad' THEN "
        f"RAISE EXCEPTION 'not this one' USING ERRCODE = '{state}'; END IF; RETURN NEW; END $$"
    )
    server._reader.execute("CREATE TRIGGER refuse BEFORE INSERT ON totals FOR EACH ROW EXECUTE FUNCTION refuse()")
    sink = opened(server)
    teams, letters = written(server, sink, pane("bad", 1), pane("red", 2))
    sink.close()
    assert (teams, letters) == (["red"], ["not this one"])


@pytest.mark.services
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_records_with_a_nul_do_not_stop_the_job(server: PostgresStore, mode: str) -> None:
    sink = opened(server, asked={"mode": mode})
    bad = [pane(f"\x00{number:03}", number) for number in range(110)]
    gone = pane("\x00gone", 0, taken_back=True)
    teams, letters = written(server, sink, *bad, gone, *(pane(f"team {number:04}", number) for number in range(1_200)))
    sink.close()
    assert len(teams) == 1_200
    assert len(letters) == 111


@pytest.mark.services
def test_a_table_with_too_many_columns_is_an_error_and_does_not_wait(server: PostgresStore) -> None:
    """SQLSTATE 54011, too_many_columns. It is an error of the table, which no other batch fits."""
    sink = opened(server)
    wide = pane("red", 1) | {f"column {number}": number for number in range(1_700)}
    with pytest.raises(SinkError, match="refused a batch") as refused:
        sink.commit(panes(wide), entry(sink, 0))
    sink.close()
    assert type(refused.value) is SinkError
    assert "1600 columns" in refused.value.detail


@pytest.mark.services
def test_a_dead_letter_in_a_database_of_another_encoding_is_stored(server: PostgresStore) -> None:
    """LATIN1 cannot hold the snowman, neither in the row nor in the letter about it."""
    name = f"latin {server.schema.split()[-1]}"
    server._reader.execute(f"CREATE DATABASE \"{name}\" ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    dsn = server.dsn.rpartition("/")[0] + f"/{name.replace(' ', '%20')}"
    definition = sl.postgres("totals", dsn=dsn)
    sink = definition.open(Deliver(0, definition, Delivery.EXACTLY_ONCE, ("team",)))
    output = replace(panes(pane("☃", 1), pane("ü", 2)), late=late("☃", 3))
    assert sink.commit(output, entry(sink, 0)) == Written(refused=2)
    sink.close()
    with psycopg.connect(dsn) as other:
        assert other.execute("SELECT team FROM totals").fetchall() == [("ü",)]
        assert other.execute("SELECT count(*) FROM totals_dead").fetchall() == [(2,)]


@pytest.mark.services
def test_two_jobs_that_add_the_same_new_keys_write_all_of_them(server: PostgresStore) -> None:
    """The one that loses the race for a key finds the other's row with its next attempt."""
    rounds, workers = 60, 3
    done: list[Written] = []
    problems: list[BaseException] = []
    barrier = threading.Barrier(workers)

    def job(number: int) -> None:
        sink = opened(server, asked={"mode": "upsert", "key": ["team"]})
        epoch = sink.claim(f"job {number}")
        try:
            for batch in range(rounds):
                barrier.wait(60)
                once = entry(sink, batch, lineage=f"job {number}", epoch=epoch)
                done.append(sink.commit(panes(pane(f"team {batch}", number)), once))
        except BaseException as problem:  # noqa: BLE001 - the test fails with it
            problems.append(problem)
            barrier.abort()
        finally:
            sink.close()

    threads = [threading.Thread(target=job, args=[number]) for number in range(workers)]
    first = opened(server, asked={"mode": "upsert", "key": ["team"]})
    first.commit(panes(pane("team before", 0)), entry(first, 0, lineage="first"))
    first.close()
    for each in threads:
        each.start()
    for each in threads:
        each.join(120)
    assert problems == []
    assert [each.refused for each in done] == [0] * (rounds * workers)
    assert server.read("totals_dead") == []
    assert len(server.read()) == rounds + 1
