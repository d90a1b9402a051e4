"""Read and delete dead letters in a sink folder's `dead/` part, through its log.

The outcome of redrives is recorded in `dead/` itself, beside the files (`letters/file_notes.py`).
"""

from functools import partial
from pathlib import Path
from typing import Final

import polars as pl

from strandline.connectors.files.compaction import label_of, publish_state
from strandline.connectors.files.manifest_log import File, FolderState, Log
from strandline.connectors.files.read_manifest import read_manifested
from strandline.connectors.files.task_files import DEAD, add_file
from strandline.errors import SinkUnavailable
from strandline.formats.row_files import decode_file
from strandline.letters.file_notes import NotedLetters
from strandline.letters.store import envelopes

_ATTEMPTS: Final = 5


def letters_in(root: Path) -> NotedLetters:
    """Open the letters of a folder, from outside of the job."""
    return NotedLetters(
        str(root / DEAD), root / DEAD, lambda: envelopes(read_manifested(root, DEAD)), partial(_erase, root)
    )


def _erase(root: Path, ids: frozenset[str]) -> None:
    log = Log(root)
    with log.sink_errors():
        if not any(_erased(log, ids) for _ in range(_ATTEMPTS)):
            raise SinkUnavailable(f"{root} was compacted by another process at every attempt", hint="try again")


def _erased(log: Log, ids: frozenset[str]) -> bool:
    """Replace files that hold these letters and delete them at once; return False if another process interfered."""
    state = log.state()
    try:
        replaced = [(file, new) for file in state.files.values() for new in _without(log.root, state, file, ids)]
        publish_state(log, state, [([file], new) for file, new in replaced], until=0)
    except (FileNotFoundError, SinkUnavailable):
        return False
    for file, _ in replaced:
        (log.root / file.path).unlink(missing_ok=True)
    return True


def _without(root: Path, state: FolderState, file: File, ids: frozenset[str]) -> list[File | None]:
    """The replacement of a file: empty if it holds none of these letters, None if it holds no others."""
    if file.part != DEAD:
        return []
    rows = decode_file(root / file.path, state.columns[DEAD])
    kept = rows.filter(~pl.col("id").is_in(ids).fill_null(value=False))
    if kept.height == rows.height:
        return []
    form = file.path.rpartition(".")[2]
    return [add_file(root, DEAD, label_of(file, state), kept, form) if kept.height else None]
