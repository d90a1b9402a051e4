"""Dead letters among the parts of a folder that is a sink: found by its log, and taken out by a record in it.

The outcome of redrives is recorded in `dead/` itself, beside the files (`letters/file_notes.py`).
"""

from functools import partial
from pathlib import Path
from typing import Final

import polars as pl

from strandline.connectors.files.compaction import label_of, tell_anew
from strandline.connectors.files.manifest_log import File, Held, Log
from strandline.connectors.files.read_manifest import read_manifested
from strandline.connectors.files.task_files import DEAD, add_file
from strandline.errors import SinkUnavailable
from strandline.formats.row_files import decoded
from strandline.letters.file_notes import NotedLetters
from strandline.letters.store import envelopes

_LOOKS: Final = 5


def letters_in(root: Path) -> NotedLetters:
    """The letters of a folder, asked from outside of the job."""
    return NotedLetters(
        str(root / DEAD), root / DEAD, lambda: envelopes(read_manifested(root, DEAD)), partial(_erase, root)
    )


def _erase(root: Path, ids: frozenset[str]) -> None:
    log = Log(root)
    with log.explained():
        if not any(_erased(log, ids) for _ in range(_LOOKS)):
            raise SinkUnavailable(f"{root} is compacted by others all the while", hint="try again")


def _erased(log: Log, ids: frozenset[str]) -> bool:
    """Files without these letters in place of those with them, which are deleted at once; False if others did so."""
    held = log.held()
    try:
        replaced = [(file, new) for file in held.files.values() for new in _without(log.root, held, file, ids)]
        tell_anew(log, held, [([file], new) for file, new in replaced], until=0)
    except (FileNotFoundError, SinkUnavailable):
        return False
    for file, _ in replaced:
        (log.root / file.path).unlink(missing_ok=True)
    return True


def _without(root: Path, held: Held, file: File, ids: frozenset[str]) -> list[File | None]:
    """What is to take the place of a file: nothing if none of these letters is in it, None if no other is."""
    if file.part != DEAD:
        return []
    rows = decoded(root / file.path, held.columns[DEAD])
    kept = rows.filter(~pl.col("id").is_in(ids).fill_null(value=False))
    if kept.height == rows.height:
        return []
    form = file.path.rpartition(".")[2]
    return [add_file(root, DEAD, label_of(file, held), kept, form) if kept.height else None]
