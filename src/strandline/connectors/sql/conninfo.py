"""Where a PostgreSQL server is and who comes to it: secrets by reference, and TLS that is checked unless it is near."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from strandline.errors import InvalidSecret, InvalidStep, SetupError, SinkError, SinkUnavailable
from strandline.formats.secrets import Secret, secret

if TYPE_CHECKING:
    import psycopg

_ALLOWED: Final = (
    "host", "hostaddr", "port", "dbname", "user", "sslmode", "sslrootcert", "sslcert", "sslkey", "connect_timeout",
    "application_name", "target_session_attrs", "channel_binding", "require_auth",
)  # fmt: skip
_NEAR: Final = ("", "localhost", "127.0.0.1", "::1")
_NEVER: Final = ("authentication failed", "does not exist", "no password supplied", "pg_hba.conf", "certificate")
"""What a server or its library says of a connection that will not come about by waiting."""


@dataclass(frozen=True, slots=True)
class Place:
    """A server as a connection string without secrets, or a reference to a whole one."""

    dsn: str | Secret
    password: Secret | None = None

    def __str__(self) -> str:
        return f"PostgreSQL at {self.dsn}" if isinstance(self.dsn, Secret) else f"PostgreSQL at {_shown(self.dsn)}"

    def connect(self) -> "psycopg.Connection[Any]":
        psycopg = _psycopg()
        asked = _parsed(self.dsn.reveal(), secrets=True) if isinstance(self.dsn, Secret) else _parsed(self.dsn)
        if self.password is not None:
            asked["password"] = self.password.reveal()
        far = [host for host in str(asked.get("host", "")).split(",") if host not in _NEAR and not host.startswith("/")]
        if far and "sslmode" not in asked:
            asked |= {"sslmode": "verify-full", "sslrootcert": asked.get("sslrootcert", "system")}
        asked = {"connect_timeout": 10, "application_name": "strandline", **asked}
        try:
            return psycopg.connect(**asked, autocommit=True)  # type: ignore[no-any-return]
        except psycopg.Error as problem:
            told = str(problem).strip().partition("\n")[0]
            if any(word in told for word in _NEVER):
                raise SinkError(
                    f"{self} lets nobody in", detail=told, hint="check user, password and database"
                ) from None
            raise SinkUnavailable(
                f"{self} is out of reach", detail=told, hint="check that it runs, and where"
            ) from None


def place_of(dsn: str | Secret, password: str | Secret | None) -> Place:
    """A server as a user names it."""
    given = None if password is None else secret(password)
    if isinstance(dsn, Secret) or dsn.startswith(("env:", "file:")):
        return Place(secret(dsn), given)
    asked = _parsed(dsn)
    unknown = sorted(set(asked) - set(_ALLOWED))
    if unknown:
        raise InvalidStep(f"the connection has options that are not known here: {', '.join(unknown)}")
    return Place(dsn, given)


def _parsed(dsn: str, *, secrets: bool = False) -> dict[str, Any]:
    """A connection string as options. What it says is not repeated: it may be a secret in the wrong place."""
    psycopg = _psycopg()
    try:
        found: dict[str, Any] = psycopg.conninfo.conninfo_to_dict(dsn)
    except psycopg.Error:
        raise InvalidStep(
            "the connection string cannot be read", hint='write "postgresql://user@host:5432/database"'
        ) from None
    if not secrets and ("password" in found or "passfile" in found):
        raise InvalidSecret(
            "a connection string with a password in it", hint='leave it out, and give password="env:NAME"'
        )
    return found


def _shown(dsn: str) -> str:
    asked = _parsed(dsn)
    return f"{asked.get('host', 'localhost')}:{asked.get('port', 5432)}/{asked.get('dbname', asked.get('user', ''))}"


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError:
        raise SetupError("psycopg is not installed", hint='pip install "strandline[postgres]"') from None
    return psycopg
