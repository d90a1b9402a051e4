"""Read a folder that has a manifest log: its live files, and their rows."""

from pathlib import Path
from typing import Any, Final

import polars as pl

from strandline.connectors.files.manifest_log import FolderState, Log
from strandline.connectors.files.task_files import PARTS
from strandline.errors import InvalidStep, SetupError
from strandline.formats.row_files import decode_file, kinds_of
from strandline.model.arguments import checked

_ATTEMPTS: Final = 5


@checked
def manifested_files(path: str | Path, part: str = "panes") -> list[str]:
    """List the live files for any engine: `spark.read.parquet(*manifested_files("totals/"))`.

    Parts are panes, late and dead. The list has all files of a batch, or none.
    """
    return [str(Path(path) / file.path) for file in _state(path, part).files.values() if file.part == part]


@checked
def read_manifested(path: str | Path, part: str = "panes", *, now: bool = False) -> pl.DataFrame:
    """Read the rows of a folder that `folder(…)` writes, whole batches only: `read_manifested("totals/", "late")`.

    `now` returns the latest answers: the newest pane of each key and window, unless it was retracted.
    """
    if now and part != "panes":
        raise InvalidStep(f"{part} has no latest answers", hint='use part="panes"')
    for _ in range(_ATTEMPTS):
        state = _state(path, part)
        try:
            rows = rows_of(Path(path), state, part)
        except FileNotFoundError:
            continue  # compacted in between, and its old files not kept long enough
        return _latest(rows, state.now) if now else rows
    raise SetupError(
        f"files of {path} were deleted while they were read",
        hint="compact it less often, or keep replaced files longer",
    )


def rows_of(root: Path, state: FolderState, part: str) -> pl.DataFrame:
    """Read the rows of a part in the order in which they were written."""
    types = state.columns.get(part, {})
    empty = pl.DataFrame(schema=kinds_of(types))
    found = [decode_file(root / file.path, types) for file in state.files.values() if file.part == part]
    return pl.concat([empty, *found])


def _latest(rows: pl.DataFrame, by: dict[str, Any] | None) -> pl.DataFrame:
    if by is None:
        if rows.width:
            raise InvalidStep(
                "these rows are not panes, or panes that are parts of results, and have no latest answers",
                hint="leave out now; write panes with accumulate(sl.accumulating) or accumulate(sl.retracting)",
            )
        return rows
    return rows.sort(by["order"], maintain_order=True).unique(by["of"], keep="last", maintain_order=True).filter(
        ~pl.col(by["retraction"])
    )  # fmt: skip


def _state(path: str | Path, part: str) -> FolderState:
    if part not in PARTS:
        raise InvalidStep(f"a folder has no part {part!r}", hint=f"choose one of {', '.join(PARTS)}")
    log = Log(Path(path))
    if not log.folder.is_dir():
        raise SetupError(f"{path} has no manifest log", hint="use a folder that sl.folder(…) writes to")
    return log.state()
