"""Where a Valkey or Redis server is and who comes to it: secrets by reference, and over TLS unless it is near."""

import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from strandline.errors import InvalidSecret, InvalidStep, SetupError, SinkError, SinkUnavailable
from strandline.formats.secrets import Secret, secret

_PLAIN: Final = ("valkey", "redis")
_OVER_TLS: Final = ("valkeys", "rediss")
_USUAL_PORT: Final = 6379
_LATER: Final = ("BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "OOM", "READONLY", "TRYAGAIN")
"""How an answer begins that may be another tomorrow."""
_NEVER: Final = ("NOAUTH", "NOPERM", "WRONGPASS")
"""How one begins that speaks of who we are."""
_IN_SCRIPT: Final = "ACL failure"
_ON_DISK_WITHIN_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class Server:
    """A server by its URL, without secrets, or by a reference to a whole one."""

    url: str | Secret
    password: Secret | None = None
    ca: str | None = None
    over_tls: bool = True
    """Whether a password travels over TLS only."""

    def __str__(self) -> str:
        return f"Valkey at {self.url if isinstance(self.url, Secret) else _shown(urlsplit(self.url))}"

    def connect(self) -> Any:
        """A client, whose types are told in part only; whether anybody answers is seen at the first command."""
        library = library_of()
        asked = _parsed(self.url.reveal(), secrets=True) if isinstance(self.url, Secret) else _parsed(self.url)
        if self.password is not None:
            asked["password"] = self.password.reveal()
        self._refuse_clear(asked)
        if asked.get("ssl"):
            asked |= {"ssl_check_hostname": True, "ssl_ca_certs": self.ca}
        return library.Valkey(
            **asked, client_name="strandline", socket_connect_timeout=10, socket_timeout=60, max_connections=1
        )

    def _refuse_clear(self, asked: dict[str, Any]) -> None:
        if self.over_tls and asked.get("password") and not asked.get("ssl") and not _is_near(asked):
            raise InvalidStep(
                f"a password would travel to {asked['host']} in the clear",
                hint="write valkeys://… or rediss://…, or say over_tls=False where nobody else listens",
            )

    @contextmanager
    def reached(self) -> Iterator[None]:
        """What the server and its client say, as the errors of a sink; in no case with a secret."""
        library = library_of().exceptions
        try:
            yield
        except (library.AuthenticationError, library.AuthorizationError, library.NoPermissionError) as problem:
            raise self._lets_nobody_in(problem) from None
        except (library.ConnectionError, library.TimeoutError, OSError) as problem:
            raise SinkUnavailable(
                f"{self} is out of reach", detail=self._said(problem), hint="check that it runs, and where"
            ) from None
        except library.ValkeyError as problem:
            word = str(problem).partition(" ")[0].rstrip(":")
            if word in _NEVER or str(problem).startswith(_IN_SCRIPT):
                raise self._lets_nobody_in(problem) from None
            kinds = (library.ReadOnlyError, library.OutOfMemoryError, library.ClusterDownError, library.TryAgainError)
            if word in _LATER or isinstance(problem, kinds):
                raise SinkUnavailable(f"{self} cannot be written now", detail=self._said(problem)) from None
            raise SinkError(f"{self} refused a batch", detail=self._said(problem)) from None

    def on_disk(self, client: Any) -> bool:
        """Waits until what this client has written is on the server's disk; False if the server cannot tell."""
        with self.reached():
            try:
                local, _ = client.execute_command("WAITAOF", 1, 0, _ON_DISK_WITHIN_MS)
            except library_of().exceptions.ResponseError as problem:
                if "WAITAOF" not in str(problem):
                    raise
                return False
        if not local:
            raise SinkUnavailable(f"{self} does not get to write to its disk")
        return True

    def _lets_nobody_in(self, problem: Exception) -> SinkError:
        return SinkError(
            f"{self} lets nobody in", detail=self._said(problem), hint="check user, password and permissions"
        )

    def _said(self, problem: Exception) -> str:
        """The first line; a client may say what it was told, so a whole URL that is secret is not repeated."""
        return type(problem).__name__ if isinstance(self.url, Secret) else str(problem).partition("\n")[0][:300]


def server_of(url: str | Secret, password: str | Secret | None, ca: str | None, over_tls: bool) -> Server:
    """A server as a user names it."""
    given = None if password is None else secret(password)
    if isinstance(url, Secret) or url.startswith(("env:", "file:")):
        return Server(secret(url), given, ca, over_tls)
    asked = _parsed(url)
    server = Server(url, given, ca, over_tls)
    server._refuse_clear({**asked, "password": given})  # noqa: SLF001 - before anything runs
    return server


def library_of() -> Any:
    """The client, which is an extra."""
    try:
        import valkey
    except ImportError:
        raise SetupError("valkey is not installed", hint='pip install "strandline[valkey]"') from None
    return valkey


def _parsed(url: str, *, secrets: bool = False) -> dict[str, Any]:
    """A URL as arguments of the client. What it says is not repeated: it may be a secret in the wrong place."""
    wrong = InvalidStep("the address of the server cannot be read", hint='write "valkey://host:6379/0"')
    try:
        parts = urlsplit(url)
        port = parts.port or _USUAL_PORT
    except ValueError:
        raise wrong from None
    if not secrets and parts.password is not None:
        raise InvalidSecret("an address with a password in it", hint='leave it out, and give password="env:NAME"')
    who = {"username": parts.username or None, "password": None if parts.password is None else unquote(parts.password)}
    if parts.query or parts.fragment:
        raise InvalidStep("the address of the server has options", hint="give only host, port and number of database")
    if parts.scheme == "unix" and parts.path:
        return {"unix_socket_path": unquote(parts.path), **who}
    number = parts.path.strip("/") or "0"
    if parts.scheme not in (*_PLAIN, *_OVER_TLS) or not parts.hostname or not number.isdecimal():
        raise wrong
    return {"host": parts.hostname, "port": port, "db": int(number), "ssl": parts.scheme in _OVER_TLS, **who}


def _shown(parts: SplitResult) -> str:
    return parts.path if parts.scheme == "unix" else f"{parts.hostname}:{parts.port or _USUAL_PORT}"


def _is_near(asked: dict[str, Any]) -> bool:
    host = asked.get("host")
    if host is None or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
