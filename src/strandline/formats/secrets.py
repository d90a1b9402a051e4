"""Secrets by reference: where one is kept is part of a pipeline, what it says is looked up when it is needed."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from strandline.errors import InvalidSecret, SetupError

_WAYS: Final = ("env", "file")
_LARGEST: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Secret:
    """The name of an environment variable or a file: `Secret("env:PASSWORD")`, `Secret("file:/run/secrets/token")`.

    A pipeline, a plan and a checkpoint hold the reference only; so do messages and logs.
    """

    reference: str

    def __post_init__(self) -> None:
        way, colon, name = self.reference.partition(":")
        if way not in _WAYS or not colon or not name:
            # What was given may be the secret itself, so it is not repeated here.
            raise InvalidSecret(
                "a secret is given by reference, not as text",
                hint='write "env:NAME" for an environment variable or "file:path" for a file',
            )

    def reveal(self) -> str:
        """What the secret says, now: on the machine that asks, at the moment of asking."""
        way, _, name = self.reference.partition(":")
        found = os.environ.get(name) if way == "env" else _first_line(Path(name))
        if not found:
            raise SetupError(
                f"the secret {self.reference} is missing or empty",
                hint=f"set the variable {name}" if way == "env" else f"write it into {name}, readable by this user",
            )
        return found

    def __str__(self) -> str:
        return self.reference


def secret(reference: str | Secret) -> Secret:
    """A secret by reference: `secret("env:PASSWORD")`."""
    return reference if isinstance(reference, Secret) else Secret(reference)


def _first_line(path: Path) -> str | None:
    """A file ends with a newline more often than a secret does."""
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(_LARGEST).partition("\n")[0].removesuffix("\r")
    except (OSError, UnicodeDecodeError):
        return None
