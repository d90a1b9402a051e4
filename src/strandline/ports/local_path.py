"""Check a path on this machine that a user named as the target of a sink."""

from pathlib import Path
from typing import Final

from strandline.errors import InvalidStep

_SCHEMES: Final = ("file:", "md:", "motherduck:", "mysql:", "postgres:", "sqlite:")
"""Prefixes by which SQLite or DuckDB open something other than the file of that name."""


def local_path(path: str | Path, what: str) -> str:
    """Return a path of a local file system as text; refuse names that another place or nothing lasting would stand for.

    SQLite and DuckDB keep an unnamed file or `:memory:` until the process ends. A URL or `~` would become a folder of
    that name under the working directory.
    """
    text = str(path)
    if not text or text.startswith(":memory:"):
        raise InvalidStep(f"{what} has no path: {text!r} is gone when the process ends", hint="name a file or a folder")
    if "://" in text or text.startswith(_SCHEMES):
        raise InvalidStep(f"{what} is on this machine, and {text!r} is a URL", hint="give a path without a scheme")
    if text.startswith("~"):
        raise InvalidStep(f"{what}: {text!r} is not expanded", hint="write pathlib.Path(…).expanduser()")
    return text
