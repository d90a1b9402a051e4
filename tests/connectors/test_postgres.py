"""The PostgreSQL sink where it differs from others: lost servers, secrets, and truncated names."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

import strandline as sl
from strandline.errors import InvalidSecret, InvalidStep, RunError, SinkError, SinkUnavailable, StrandlineError
from strandline.plan.endpoints import Delivery
from strandline.plan.stages import Deliver
from strandline.ports.ledger import LedgerEntry, Written
from strandline.ports.sinks import OpenSink
from strandline.services.service import Service
from strandline.spark.delivery.deliver import Retry, deliver
from tests.contracts.sinks import pane, panes
from tests.contracts.stores import PostgresStore

pytest_plugins = ["strandline.testing.services"]

SECRET = "hunter2-the-canary"


@pytest.fixture
def store(postgres: Service) -> Iterator[PostgresStore]:
    new_store = PostgresStore(postgres.address)
    yield new_store
    new_store.close()


@pytest.fixture
def sink(store: PostgresStore) -> Iterator[OpenSink]:
    definition = store.sink()
    found = definition.open(Deliver(0, definition, Delivery.EXACTLY_ONCE, ("team",)))
    yield found
    found.close()


def entry(sink: OpenSink, batch: int) -> LedgerEntry:
    return LedgerEntry("mine", sink.claim("mine"), batch, "range")


@pytest.mark.services
def test_a_server_that_was_killed_is_waited_for_and_nothing_is_lost(postgres: Service, sink: OpenSink) -> None:
    first, second = entry(sink, 0), LedgerEntry("mine", 1, 1, "next range")
    assert sink.commit(panes(pane("red", 5)), first).fresh
    postgres.kill()
    heard: list[RunError | None] = []
    back = threading.Event()

    def hears(problem: RunError | None) -> None:
        heard.append(problem)
        if len(heard) == 2 and not back.is_set():
            back.set()
            postgres.start()

    written = deliver(sink, Delivery.EXACTLY_ONCE, panes(pane("red", 6, 1)), second, Retry(report=hears, shortest=0.05))
    assert written == Written()
    assert all(isinstance(each, SinkUnavailable) for each in heard[:2])
    assert heard[-1] is None
    assert "PostgreSQL at 127.0.0.1" in str(heard[0])
    found = sink.latest("mine")
    assert found is not None
    assert found.batch == 1


@pytest.mark.services
def test_a_lost_connection_is_reopened(store: PostgresStore, sink: OpenSink) -> None:
    once = entry(sink, 0)
    with psycopg.connect(store.dsn, autocommit=True) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'strandline' AND pid <> pg_backend_pid()"
        )
    with pytest.raises(SinkUnavailable, match="cannot be written now"):
        sink.commit(panes(pane("red", 5)), once)
    assert sink.commit(panes(pane("red", 5)), once).fresh
    assert [row["total"] for row in store.read()] == [5]


@pytest.mark.services
def test_a_failed_login_is_reported_without_the_secret(postgres: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", SECRET)
    host = postgres.address.replace("strandline@", "stranger@")
    monkeypatch.setenv("WHOLE", host.replace("stranger@", f"stranger:{SECRET}@"))
    for sink_definition in (
        sl.postgres("totals", dsn=host, password="env:CANARY"),
        sl.postgres("totals", dsn="env:WHOLE"),
    ):
        with pytest.raises(SinkError, match="rejects the connection") as refused:
            sink_definition.open(Deliver(0, sink_definition, Delivery.EXACTLY_ONCE, None))
        assert not isinstance(refused.value, SinkUnavailable)
        assert SECRET not in str(refused.value)
        assert SECRET not in repr(sink_definition) + str(sink_definition.definition) + sink_definition.name


def test_an_unreachable_server_is_reported_with_its_address() -> None:
    definition = sl.postgres("totals", dsn="postgresql://me@127.0.0.1:1/scores")
    with pytest.raises(SinkUnavailable, match="PostgreSQL at 127.0.0.1:1/scores cannot be reached"):
        definition.open(Deliver(0, definition, Delivery.EXACTLY_ONCE, None))


@pytest.mark.parametrize(
    ("dsn", "error"),
    [
        (f"postgresql://me:{SECRET}@host/db", InvalidSecret),
        (f"host=db password={SECRET}", InvalidSecret),
        (f"host=db passfile={SECRET}", InvalidSecret),
        (SECRET, InvalidStep),
        ("host=db options='-c role=boss'", InvalidStep),
        ("host=db service=other", InvalidStep),
    ],
)
def test_connection_strings_with_secrets_or_unknown_options_are_refused(dsn: str, error: type[StrandlineError]) -> None:
    with pytest.raises(error) as refused:
        sl.postgres("totals", dsn=dsn)
    assert SECRET not in str(refused.value)


@pytest.mark.services
def test_a_name_that_would_be_truncated_is_refused(store: PostgresStore, sink: OpenSink) -> None:
    long = "ü" * 32
    with pytest.raises(SinkError, match="is too long"):
        sink.commit(panes(pane("red", 5) | {long: 1}), entry(sink, 0))
    definition = store.sink("x" * 60)
    with pytest.raises(SinkError, match="is too long"):
        definition.open(Deliver(0, definition, Delivery.EXACTLY_ONCE, ("team",)))


@pytest.mark.services
def test_a_locked_table_is_waited_for(store: PostgresStore, sink: OpenSink, monkeypatch: pytest.MonkeyPatch) -> None:
    first = entry(sink, 0)
    sink.commit(panes(pane("red", 5)), first)
    sink._database.execute("SET lock_timeout = '50ms'")  # type: ignore[attr-defined]
    with psycopg.connect(store.dsn) as other:
        other.execute(f'LOCK TABLE "{store.schema}".totals')
        with pytest.raises(SinkUnavailable, match="cannot be written now"):
            sink.commit(panes(pane("red", 6, 1)), LedgerEntry("mine", first.epoch, 1, "next"))
    assert sink.commit(panes(pane("red", 6, 1)), LedgerEntry("mine", first.epoch, 1, "next")).fresh


@pytest.mark.services
def test_a_missing_schema_is_refused_by_name_and_nothing_is_written_elsewhere(postgres: Service) -> None:
    definition = sl.postgres("totals", dsn=postgres.address, schema="no such reports")
    with pytest.raises(SinkError, match="has no schema 'no such reports'") as refused:
        definition.open(Deliver(0, definition, Delivery.EXACTLY_ONCE, ("team",)))
    assert not isinstance(refused.value, SinkUnavailable)
    assert "create_schema=True" in refused.value.hint
    with pytest.raises(SinkError, match="has no schema 'no such reports'"):
        definition.letters().read()


@pytest.mark.services
def test_a_schema_is_created_if_asked(postgres: Service) -> None:
    definition = sl.postgres("totals", dsn=postgres.address, schema="made on request", create_schema=True)
    for _ in range(2):  # the second time it exists
        sink = definition.open(Deliver(0, definition, Delivery.EXACTLY_ONCE, ("team",)))
        sink.commit(panes(pane("red", 5)), entry(sink, 0))
        sink.close()
    with psycopg.connect(postgres.address) as other:
        assert other.execute('SELECT total FROM "made on request".totals').fetchall() == [(5,)]
        assert other.execute('SELECT batch FROM "made on request".strandline_ledger').fetchall() == [(0,)]


@pytest.mark.services
def test_a_schema_that_is_dropped_while_the_job_runs_is_never_replaced(store: PostgresStore, sink: OpenSink) -> None:
    first = entry(sink, 0)
    sink.commit(panes(pane("red", 5)), first)
    with psycopg.connect(store.dsn, autocommit=True) as other:
        other.execute(f'DROP SCHEMA "{store.schema}" CASCADE')
    later = LedgerEntry("mine", first.epoch, 1, "next")
    with pytest.raises(SinkError, match="refused a batch") as refused:
        sink.commit(panes(pane("red", 6, 1)), later)
    assert not isinstance(refused.value, SinkUnavailable)


@contextmanager
def search_path(postgres: Service, path: str) -> Iterator[psycopg.Connection[Any]]:
    """Change the search path of the user for a while."""
    with psycopg.connect(postgres.address, autocommit=True) as other:
        other.execute(f"ALTER ROLE CURRENT_USER SET search_path = {path}")
        try:
            yield other
        finally:
            other.execute("ALTER ROLE CURRENT_USER RESET search_path")


@pytest.mark.services
@pytest.mark.parametrize("path", ["nowhere", "nowhere, pg_temp"])
def test_a_search_path_without_a_permanent_schema_is_refused(postgres: Service, path: str) -> None:
    definition = sl.postgres("totals", dsn=postgres.address)
    with search_path(postgres, path), pytest.raises(SinkError, match="has no schema to write to") as refused:
        definition.open(Deliver(0, definition, Delivery.EXACTLY_ONCE, ("team",)))
    assert "schema=" in refused.value.hint


@pytest.mark.services
def test_a_search_path_that_names_temporary_tables_writes_permanent_ones(postgres: Service) -> None:
    definition = sl.postgres("totals", dsn=postgres.address)
    with search_path(postgres, "pg_temp, lasting") as other:
        other.execute("CREATE SCHEMA lasting")
        sink = definition.open(Deliver(0, definition, Delivery.EXACTLY_ONCE, ("team",)))
        sink.commit(panes(pane("red", 5)), entry(sink, 0))
        sink.close()
        assert other.execute("SELECT total FROM lasting.totals").fetchall() == [(5,)]


@pytest.mark.parametrize("asked", [{"schema": ""}, {"schema": "pg_temp"}, {"create_schema": True}])
def test_schemas_that_hold_no_tables_are_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(InvalidStep, match="schema"):
        sl.postgres("totals", dsn="postgresql://me@localhost/scores", **asked)
