"""The connection to a PostgreSQL server on another machine is verified, however its address is spelled."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest

from strandline.connectors.sql.conninfo import place_of
from strandline.connectors.sql.postgres_tls import tls_options
from strandline.formats.secrets import secret

VERIFIED = {"sslmode": "verify-full", "sslrootcert": "system"}
VARIABLES = ("PGHOST", "PGHOSTADDR", "PGSSLMODE", "PGSSLROOTCERT", "PGSERVICE", "PGSERVICEFILE", "PGSYSCONFDIR")


@pytest.mark.parametrize(
    ("options", "environ", "host"),
    [
        ({"host": "db.example.org"}, {}, None),
        ({"host": "10.0.0.7"}, {}, None),
        ({"hostaddr": "10.0.0.7"}, {}, "10.0.0.7"),
        ({"hostaddr": "10.0.0.7", "host": "localhost"}, {}, None),
        ({"host": "/run/postgresql,db.example.org"}, {}, None),
        ({}, {"PGHOST": "db.example.org"}, None),
        ({}, {"PGHOSTADDR": "10.0.0.7"}, "10.0.0.7"),
        ({"host": "localhost"}, {"PGHOSTADDR": "10.0.0.7"}, None),
        ({"dbname": "x"}, {"PGHOST": "localhost", "PGHOSTADDR": "fd00::1"}, None),
    ],
)
def test_a_server_on_another_machine_is_verified_by_any_spelling(
    options: dict[str, Any], environ: Mapping[str, str], host: str | None
) -> None:
    assert tls_options(options, environ) == VERIFIED | ({} if host is None else {"host": host})


@pytest.mark.parametrize(
    ("options", "environ"),
    [
        ({}, {}),
        ({"host": "localhost"}, {}),
        ({"host": "127.0.0.1"}, {"PGHOST": "db.example.org"}),
        ({"host": "127.0.1.1,::1"}, {}),
        ({"hostaddr": "::1"}, {}),
        ({"host": "/run/postgresql"}, {}),
        ({"host": "@socket"}, {}),
        ({}, {"PGHOST": "/run/postgresql"}),
        ({"host": "db.example.org", "sslmode": "require"}, {}),
        ({"host": "db.example.org"}, {"PGSSLMODE": "disable"}),
    ],
)
def test_a_local_server_and_a_mode_that_the_user_chose_stay_as_they_are(
    options: dict[str, Any], environ: Mapping[str, str]
) -> None:
    assert tls_options(options, environ) == {}


@pytest.mark.parametrize("spelled", ["option", "variable"])
def test_the_address_in_a_service_file_counts(spelled: str, tmp_path: Path) -> None:
    file = tmp_path / "services.conf"
    file.write_text(
        "# comment\n[far]\nhost=db.example.org\n[near]\nhost=/run\n[chosen]\nhost=a.b\nsslmode=require\n[empty]\n"
        "[ldap]\nldap://directory/dc=x\n"
    )
    environ = {"PGSERVICEFILE": str(file), "PGHOST": "localhost"}

    def of(name: str) -> dict[str, Any]:
        if spelled == "option":
            return tls_options({"service": name}, environ)
        return tls_options({}, {**environ, "PGSERVICE": name})

    assert of("far") == VERIFIED
    assert of("near") == of("chosen") == of("empty") == {}
    assert of("ldap")["sslmode"] == of("elsewhere")["sslmode"] == "verify-full"


def test_the_connection_itself_is_opened_with_these_options(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[dict[str, Any]] = []
    monkeypatch.setattr(psycopg, "connect", lambda **options: opened.append(options))
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PGHOSTADDR", "10.0.0.7")
    monkeypatch.setenv("DSN", "postgresql:///x?hostaddr=10.0.0.8")
    place_of("dbname=x", None).connect()
    place_of(secret("env:DSN"), None).connect()
    assert [each["sslmode"] for each in opened] == ["verify-full"] * 2
