"""Refer to secrets: a pipeline holds where a secret is stored, and its value is read when needed."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from strandline.errors import InvalidSecret, SetupError
from strandline.model.arguments import checked
from strandline.redaction import remember

_WAYS: Final = ("env", "file")
_LARGEST: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Secret:
    """The name of an environment variable or a file: `Secret("env:PASSWORD")`, `Secret("file:/run/secrets/token")`.

    Pipelines, plans, checkpoints, messages and logs hold the reference only.
    """

    reference: str

    def __post_init__(self) -> None:
        kind, colon, name = self.reference.partition(":")
        if kind not in _WAYS or not colon or not name:
            # The given text may be the secret itself, so the error does not repeat it.
            raise InvalidSecret(
                "a secret is given by reference, not as text",
                hint='write "env:NAME" for an environment variable or "file:path" for a file',
            )

    def reveal(self) -> str:
        """Read the secret's current value on this machine, without the newline at its end; it is masked in texts from
        now on."""
        kind, _, name = self.reference.partition(":")
        found = (os.environ.get(name) or "").rstrip("\r\n") if kind == "env" else _first_line(Path(name))
        if not found:
            raise SetupError(
                f"the secret {self.reference} is missing or empty",
                hint=f"set the variable {name}" if kind == "env" else f"write it into {name}, readable by this user",
            )
        remember(found)
        return found

    def __str__(self) -> str:
        return self.reference


@checked
def secret(reference: str | Secret) -> Secret:
    """Refer to a secret: `secret("env:PASSWORD")`."""
    return reference if isinstance(reference, Secret) else Secret(reference)


def _first_line(path: Path) -> str | None:
    """Read the first line: a file usually ends with a newline, which is not part of the secret."""
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(_LARGEST).partition("\n")[0].removesuffix("\r")
    except (OSError, UnicodeDecodeError):
        return None
