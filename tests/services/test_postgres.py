"""The PostgreSQL server, through its usual client."""

import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from strandline.errors import ServiceError, SetupError
from strandline.services import postgres as module
from strandline.services.postgres import MAJOR, Postgres, programs
from strandline.services.processes import birth_of
from strandline.services.service import Place, Service, quiet

pytestmark = pytest.mark.services


@pytest.fixture
def connection(postgres: Service) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres.address, autocommit=True) as opened:
        yield opened


def test_it_is_a_real_postgresql(connection: psycopg.Connection) -> None:
    assert connection.execute("SHOW server_version").fetchone() == (Postgres().version,)
    assert Postgres().version.startswith(str(MAJOR))
    assert connection.execute("SELECT sum(n) FROM generate_series(1, 4) n").fetchone() == (10,)


def test_committed_rows_survive_a_stop_and_a_kill(postgres: Service) -> None:
    address = postgres.address
    with psycopg.connect(address, autocommit=True) as opened:
        opened.execute("CREATE TABLE kept (n int)")
    for number, end in enumerate((postgres.stop, postgres.kill), 1):
        with psycopg.connect(address, autocommit=True) as opened:
            opened.execute("INSERT INTO kept VALUES (%s)", (number,))
        assert end()
        assert postgres.start()
        assert postgres.address == address
    with psycopg.connect(address) as opened:
        assert opened.execute("SELECT n FROM kept ORDER BY n").fetchall() == [(1,), (2,)]


def test_it_ends_while_clients_are_connected(postgres: Service) -> None:
    pid = postgres.pid
    assert pid is not None
    client = psycopg.connect(postgres.address)
    client.execute("SELECT 1")
    assert postgres.stop()
    assert birth_of(pid) is None
    client.close()
    assert postgres.start()


def test_changes_can_be_captured_from_the_start(connection: psycopg.Connection) -> None:
    connection.execute("SELECT pg_create_logical_replication_slot('captured', 'pgoutput')")
    assert connection.execute("SELECT plugin FROM pg_replication_slots").fetchall() == [("pgoutput",)]
    connection.execute("SELECT pg_drop_replication_slot('captured')")


def test_no_client_can_run_programs_on_the_machine(postgres: Service, connection: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("COPY (SELECT 1) TO PROGRAM 'true'")
    with pytest.raises(psycopg.OperationalError, match="no pg_hba.conf entry"):
        psycopg.connect(postgres.address.replace("strandline@", "postgres@"))


def test_it_never_runs_as_root(postgres: Service) -> None:
    assert Path(f"/proc/{postgres.pid}").stat().st_uid != 0


def test_data_of_another_major_version_are_refused(tmp_path: Path) -> None:
    place = Place(tmp_path, (1,))
    place.data.mkdir()
    (place.data / "PG_VERSION").write_text("12\n")
    (tmp_path / "made").touch()
    with pytest.raises(ServiceError, match="created by PostgreSQL 12"):
        Postgres().prepare(place, quiet)


def test_without_the_wheel_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WHEEL", "there_is_no_such_wheel")
    with pytest.raises(SetupError, match="there is no PostgreSQL server.*strandline\\[services\\]"):
        programs()


def test_an_unprivileged_user_needs_no_other_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert Postgres().account() == []


def test_root_without_setpriv_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SetupError, match="does not run as root"):
        Postgres().account()
