"""Show dead letters, and redrive them where the job's pipeline is known."""

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.dashboard import api_types
from strandline.dashboard.dead_letter_queries import LetterQuery, OpenedLetters
from strandline.dashboard.graph import JobDefinition

if TYPE_CHECKING:
    from strandline.dashboard.dead_letter_reader import LetterReader


class DeadLetterPages:
    """The dead letters of all jobs. Polars, most of the dashboard's memory, is loaded at the first request only."""

    def __init__(self, open_pipeline: Callable[[Path], OpenedLetters | None]) -> None:
        self._open_pipeline = open_pipeline

    @cached_property
    def _stores(self) -> "LetterReader":
        from strandline.dashboard.dead_letter_reader import LetterReader  # noqa: PLC0415

        return LetterReader(self._open_pipeline)

    def letters(self, folder: Path, known: JobDefinition, query: LetterQuery) -> api_types.Letters:
        """A page of letters, newest first."""
        return self._stores.letters(folder, known, query)

    def letter(self, folder: Path, known: JobDefinition, id_: str) -> api_types.LetterWhole:
        """All fields of one letter."""
        return self._stores.letter(folder, known, id_)

    def redrive(self, folder: Path, known: JobDefinition, ids: Sequence[str]) -> api_types.Redriven:
        """Redrive these letters to their sources."""
        return self._stores.redrive(folder, known, ids)
