"""List the services by name, and find their home folder."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from strandline.errors import ServiceError
from strandline.services.kafka import Kafka
from strandline.services.postgres import Postgres
from strandline.services.registry import Registry
from strandline.services.service import Program, Service
from strandline.services.valkey import Valkey

HOME_VARIABLE: Final = "STRANDLINE_SERVICES"

PROGRAMS: Final[Mapping[str, Program]] = {
    program.name: program for program in (Kafka(), Postgres(), Registry(), Valkey())
}


def services_home(chosen: Path | None = None) -> Path:
    """The chosen folder, or else that of STRANDLINE_SERVICES, or else one among the user's data."""
    if chosen is not None:
        return chosen.expanduser().absolute()
    if named := os.environ.get(HOME_VARIABLE):
        return Path(named).expanduser().absolute()
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser().absolute() / "strandline" / "services"


def service(name: str, home: Path | None = None, *, leashed: bool = False) -> Service:
    """The service of this name in this home folder, running or not."""
    program = PROGRAMS.get(name)
    if program is None:
        raise ServiceError(f"there is no service {name!r}", hint=f"choose from {', '.join(PROGRAMS)}")
    return Service(program, services_home(home) / name, leashed=leashed)
