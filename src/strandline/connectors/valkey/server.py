"""Connect to a Valkey or Redis server: secrets by reference, and TLS unless the server is local."""

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
_TRANSIENT: Final = (
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "NOREPLICAS",
    "OOM",
    "READONLY",
    "TRYAGAIN",
)
"""Error prefixes of transient failures."""
_REJECTED: Final = ("NOAUTH", "NOPERM", "WRONGPASS")
"""Error prefixes of authentication and permission failures."""
_REJECTED_IN_SCRIPT: Final = "ACL failure"
_ON_DISK_WITHIN_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class Server:
    """A server by its URL without secrets, or by a reference to a whole one."""

    url: str | Secret
    password: Secret | None = None
    ca: str | None = None
    over_tls: bool = True
    """Whether a password may be sent over TLS only."""

    def __str__(self) -> str:
        return f"Valkey at {self.url if isinstance(self.url, Secret) else _address(urlsplit(self.url))}"

    def connect(self, seconds: float | None = None) -> Any:
        """Create a client. It is partly untyped and connects at the first command."""
        library = valkey_library()
        arguments = _parsed(self.url.reveal(), secrets=True) if isinstance(self.url, Secret) else _parsed(self.url)
        if self.password is not None:
            arguments["password"] = self.password.reveal()
        self._refuse_unencrypted(arguments)
        if arguments.get("ssl"):
            arguments |= {"ssl_check_hostname": True, "ssl_ca_certs": self.ca}
        return library.Valkey(
            **arguments,
            client_name="strandline",
            socket_connect_timeout=seconds or 10,
            socket_timeout=seconds or 60,
            max_connections=1,
        )

    def _refuse_unencrypted(self, arguments: dict[str, Any]) -> None:
        if self.over_tls and arguments.get("password") and not arguments.get("ssl") and not _is_loopback(arguments):
            raise InvalidStep(
                f"the password would be sent to {arguments['host']} unencrypted",
                hint="write valkeys://… or rediss://…, or set over_tls=False on a trusted network",
            )

    @contextmanager
    def sink_errors(self) -> Iterator[None]:
        """Convert errors of the server and its client to sink errors, without secrets."""
        library = valkey_library().exceptions
        try:
            yield
        except (library.AuthenticationError, library.AuthorizationError, library.NoPermissionError) as problem:
            raise self._rejected(problem) from None
        except (library.ConnectionError, library.TimeoutError, OSError) as problem:
            raise SinkUnavailable(
                f"{self} cannot be reached", detail=self._message(problem), hint="check that it runs, and its address"
            ) from None
        except library.ValkeyError as problem:
            word = str(problem).partition(" ")[0].rstrip(":")
            if word in _REJECTED or str(problem).startswith(_REJECTED_IN_SCRIPT):
                raise self._rejected(problem) from None
            kinds = (library.ReadOnlyError, library.OutOfMemoryError, library.ClusterDownError, library.TryAgainError)
            if word in _TRANSIENT or isinstance(problem, kinds):
                raise SinkUnavailable(f"{self} cannot be written now", detail=self._message(problem)) from None
            raise SinkError(f"{self} refused a batch", detail=self._message(problem)) from None

    def on_disk(self, client: Any) -> bool:
        """Wait until this client's writes are on the server's disk; return False if the server cannot report it."""
        with self.sink_errors():
            try:
                local, _ = client.execute_command("WAITAOF", 1, 0, _ON_DISK_WITHIN_MS)
            except valkey_library().exceptions.ResponseError as problem:
                if "WAITAOF" not in str(problem):
                    raise
                return False
        if not local:
            raise SinkUnavailable(f"{self} did not write to its disk in time")
        return True

    def _rejected(self, problem: Exception) -> SinkError:
        return SinkError(
            f"{self} rejects the connection", detail=self._message(problem), hint="check user, password and permissions"
        )

    def _message(self, problem: Exception) -> str:
        """The first line of an error. Only the error's type if the URL is secret: a client may repeat it."""
        return type(problem).__name__ if isinstance(self.url, Secret) else str(problem).partition("\n")[0][:300]


def server_of(url: str | Secret, password: str | Secret | None, ca: str | None, over_tls: bool) -> Server:
    """Check a server's address from the user."""
    given = None if password is None else secret(password)
    if isinstance(url, Secret) or url.startswith(("env:", "file:")):
        return Server(secret(url), given, ca, over_tls)
    arguments = _parsed(url)
    server = Server(url, given, ca, over_tls)
    server._refuse_unencrypted({**arguments, "password": given})  # noqa: SLF001 - before anything runs
    return server


def valkey_library() -> Any:
    """Import the client library, an optional extra."""
    try:
        import valkey
    except ImportError:
        raise SetupError("valkey is not installed", hint='pip install "strandline[valkey]"') from None
    return valkey


def _parsed(url: str, *, secrets: bool = False) -> dict[str, Any]:
    """Parse a URL into client arguments. Errors do not repeat it: it may hold a secret in the wrong place."""
    wrong = InvalidStep("the address of the server cannot be read", hint='write "valkey://host:6379/0"')
    try:
        parts = urlsplit(url)
        port = parts.port or _USUAL_PORT
    except ValueError:
        raise wrong from None
    if not secrets and parts.password is not None:
        raise InvalidSecret("the address contains a password", hint='leave it out, and use password="env:NAME"')
    login = {
        "username": parts.username or None,
        "password": None if parts.password is None else unquote(parts.password),
    }
    if parts.query or parts.fragment:
        raise InvalidStep("the address of the server has options", hint="give only host, port and database number")
    if parts.scheme == "unix" and parts.path:
        return {"unix_socket_path": unquote(parts.path), **login}
    number = parts.path.strip("/") or "0"
    if parts.scheme not in (*_PLAIN, *_OVER_TLS) or not parts.hostname or not number.isdecimal():
        raise wrong
    return {"host": parts.hostname, "port": port, "db": int(number), "ssl": parts.scheme in _OVER_TLS, **login}


def _address(parts: SplitResult) -> str:
    return parts.path if parts.scheme == "unix" else f"{parts.hostname}:{parts.port or _USUAL_PORT}"


def _is_loopback(arguments: dict[str, Any]) -> bool:
    host = arguments.get("host")
    if host is None or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
