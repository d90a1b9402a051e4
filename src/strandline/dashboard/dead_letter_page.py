"""Dead letters on a page: found, looked at, and sent back where the job's pipeline is known."""

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.dashboard import api_types
from strandline.dashboard.dead_letter_queries import Asked, Opened
from strandline.dashboard.graph import About

if TYPE_CHECKING:
    from strandline.dashboard.dead_letter_reader import Stores


class Desk:
    """The letters of every job. Nothing of Polars, most of a dashboard's memory, is loaded before somebody asks."""

    def __init__(self, open_pipeline: Callable[[Path], Opened | None]) -> None:
        self._open_pipeline = open_pipeline

    @cached_property
    def _stores(self) -> "Stores":
        from strandline.dashboard.dead_letter_reader import Stores  # noqa: PLC0415

        return Stores(self._open_pipeline)

    def letters(self, folder: Path, known: About, asked: Asked) -> api_types.Letters:
        """A page of letters, newest first."""
        return self._stores.letters(folder, known, asked)

    def letter(self, folder: Path, known: About, id_: str) -> api_types.LetterWhole:
        """All of one letter."""
        return self._stores.letter(folder, known, id_)

    def redrive(self, folder: Path, known: About, ids: Sequence[str]) -> api_types.Redriven:
        """Sends the records of these letters back to where they came from."""
        return self._stores.redrive(folder, known, ids)
