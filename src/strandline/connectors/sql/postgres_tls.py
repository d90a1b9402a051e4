"""Require verified TLS to a PostgreSQL server on another machine, wherever its address is configured.

libpq finds the address in the connection string, then in the service file, then in PGHOST and PGHOSTADDR. Its own
default is `sslmode=prefer`, which accepts any server and falls back to no encryption.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

_SPELLINGS: Final = ("host", "hostaddr", "sslmode", "sslrootcert")
_VARIABLES: Final = {"host": "PGHOST", "hostaddr": "PGHOSTADDR", "sslmode": "PGSSLMODE", "sslrootcert": "PGSSLROOTCERT"}


def tls_options(options: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return `sslmode=verify-full` if a server is on another machine and the user has not chosen a mode anywhere."""
    known = _resolved(options, environ)
    hosts, addresses = _listed(known.get("host")), _listed(known.get("hostaddr"))
    if known.get("sslmode") or all(map(_is_local, [*hosts, *addresses])):
        return {}
    # libpq compares the certificate with `host`. If only an address is known, `host` is set to the address.
    by_address = {} if any(hosts) else {"host": known["hostaddr"]}
    return {"sslmode": "verify-full", "sslrootcert": known.get("sslrootcert") or "system", **by_address}


def _resolved(options: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, str]:
    """Find each option as libpq does: in the connection string, the service, or the environment."""
    variables = {name: environ[variable] for name, variable in _VARIABLES.items() if environ.get(variable)}
    name = str(options.get("service") or environ.get("PGSERVICE") or "")
    service = _service(name, options, environ) if name else {}
    given = {name: str(options[name]) for name in _SPELLINGS if options.get(name)}
    return {**variables, **service, **given}


def _service(name: str, options: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, str]:
    """Read a service of libpq. A service in no file may be on any server, so it counts as another machine."""
    own = options.get("servicefile") or environ.get("PGSERVICEFILE") or Path.home() / ".pg_service.conf"
    folder = environ.get("PGSYSCONFDIR")
    for path in (Path(str(own)), *([Path(folder) / "pg_service.conf"] if folder else [])):
        with suppress(OSError, UnicodeDecodeError):
            found = dict(_section(path.read_text(encoding="utf-8").splitlines(), name))
            if found:
                return {key: value for key, value in found.items() if key in _SPELLINGS}
    return {"hostaddr": f"service {name}"}


def _section(lines: list[str], name: str) -> Iterator[tuple[str, str]]:
    """Yield the options of a section, after one empty pair that tells an empty section from a missing one."""
    inside = False
    for line in map(str.strip, lines):
        if line.startswith("["):
            if inside:
                return
            inside = line == f"[{name}]"
            if inside:
                yield "", ""
        elif inside and line.startswith("ldap"):
            yield "hostaddr", line  # the address is looked up elsewhere
        elif inside and line and not line.startswith("#"):
            key, _, value = line.partition("=")
            yield key, value


def _listed(hosts: str | None) -> list[str]:
    return [host.strip() for host in (hosts or "").split(",")]


def _is_local(host: str) -> bool:
    """Tell whether a host is this machine: no host, a Unix socket, or a loopback address."""
    if host in ("", "localhost") or host.startswith(("/", "@")):
        return True
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return False
