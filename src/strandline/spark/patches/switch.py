"""Read STRANDLINE_PATCHES, the environment variable that switches patches off.

    STRANDLINE_PATCHES=off                         all patches off
    STRANDLINE_PATCHES=-fork_server,-worker_gc     these patches off, all others on

Workers of a local Spark inherit the variable. This module imports nothing, because workers load it.
"""

import os
from collections.abc import Mapping
from typing import Final

VARIABLE: Final = "STRANDLINE_PATCHES"
_ALL_OFF: Final = "off"


def is_on(name: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the switch leaves this patch on."""
    value = environ.get(VARIABLE, "").strip()
    return value != _ALL_OFF and name not in switched_off(environ)


def switched_off(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the names of patches that are switched off one by one."""
    words = (each.strip() for each in environ.get(VARIABLE, "").split(","))
    return tuple(each.removeprefix("-") for each in words if each and each != _ALL_OFF)
