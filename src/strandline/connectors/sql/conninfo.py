"""Connect to a PostgreSQL server: secrets by reference, and verified TLS unless the server is local."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from strandline.connectors.sql.postgres_tls import tls_options
from strandline.errors import InvalidSecret, InvalidStep, SetupError, SinkError, SinkUnavailable
from strandline.formats.secrets import Secret, secret

if TYPE_CHECKING:
    import psycopg

_ALLOWED: Final = (
    "host", "hostaddr", "port", "dbname", "user", "sslmode", "sslrootcert", "sslcert", "sslkey", "connect_timeout",
    "application_name", "target_session_attrs", "channel_binding", "require_auth",
)  # fmt: skip
_PERMANENT: Final = ("authentication failed", "does not exist", "no password supplied", "pg_hba.conf", "certificate")
"""Error texts of connection failures that a retry does not cure."""


@dataclass(frozen=True, slots=True)
class Place:
    """A server as a connection string without secrets, or as a reference to a whole one."""

    dsn: str | Secret
    password: Secret | None = None

    def __str__(self) -> str:
        return f"PostgreSQL at {self.dsn}" if isinstance(self.dsn, Secret) else f"PostgreSQL at {_address(self.dsn)}"

    def connect(self, seconds: int = 10) -> "psycopg.Connection[Any]":
        psycopg = _psycopg()
        options = _parsed(self.dsn.reveal(), secrets=True) if isinstance(self.dsn, Secret) else _parsed(self.dsn)
        if self.password is not None:
            options["password"] = self.password.reveal()
        options |= tls_options(options)
        options = {"connect_timeout": seconds, "application_name": "strandline", **options}
        try:
            return psycopg.connect(**options, autocommit=True)  # type: ignore[no-any-return]
        except psycopg.Error as problem:
            detail = str(problem).strip().partition("\n")[0]
            if any(word in detail for word in _PERMANENT):
                raise SinkError(
                    f"{self} rejects the connection", detail=detail, hint="check user, password and database"
                ) from None
            raise SinkUnavailable(
                f"{self} cannot be reached", detail=detail, hint="check that it runs, and its address"
            ) from None


def place_of(dsn: str | Secret, password: str | Secret | None) -> Place:
    """Check a connection string from the user."""
    given = None if password is None else secret(password)
    if isinstance(dsn, Secret) or dsn.startswith(("env:", "file:")):
        return Place(secret(dsn), given)
    options = _parsed(dsn)
    unknown = sorted(set(options) - set(_ALLOWED))
    if unknown:
        raise InvalidStep(f"the connection string has unsupported options: {', '.join(unknown)}")
    return Place(dsn, given)


def _parsed(dsn: str, *, secrets: bool = False) -> dict[str, Any]:
    """Parse a connection string. Errors do not repeat it: it may hold a secret in the wrong place."""
    psycopg = _psycopg()
    try:
        found: dict[str, Any] = psycopg.conninfo.conninfo_to_dict(dsn)
    except psycopg.Error:
        raise InvalidStep(
            "the connection string cannot be read", hint='write "postgresql://user@host:5432/database"'
        ) from None
    if not secrets and ("password" in found or "passfile" in found):
        raise InvalidSecret(
            "the connection string contains a password", hint='leave it out, and use password="env:NAME"'
        )
    return found


def _address(dsn: str) -> str:
    options = _parsed(dsn)
    database = options.get("dbname", options.get("user", ""))
    host = options.get("host") or options.get("hostaddr") or "localhost"
    return f"{host}:{options.get('port', 5432)}/{database}"


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError:
        raise SetupError("psycopg is not installed", hint='pip install "strandline[postgres]"') from None
    return psycopg
