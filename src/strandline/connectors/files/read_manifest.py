"""What a folder with a log holds: the files that count, and their rows."""

from pathlib import Path
from typing import Any, Final

import polars as pl

from strandline.connectors.files.manifest_log import Held, Log
from strandline.connectors.files.task_files import PARTS
from strandline.errors import InvalidStep, SetupError
from strandline.formats.row_files import decoded, kinds_of

_LOOKS: Final = 5


def manifested_files(path: str | Path, part: str = "panes") -> list[str]:
    """The files that count, for any engine: `spark.read.parquet(*manifested_files("totals/"))`.

    Parts are panes, late and dead. All of a batch's files are in the list, or none.
    """
    return [str(Path(path) / file.path) for file in _held(path, part).files.values() if file.part == part]


def read_manifested(path: str | Path, part: str = "panes", *, now: bool = False) -> pl.DataFrame:
    """The rows of a folder that `folder(…)` writes, whole batches only: `read_manifested("totals/", "late")`.

    `now` gives the latest answers: of each key and window the newest pane, unless that was taken back.
    """
    if now and part != "panes":
        raise InvalidStep(f"{part} has no latest answers", hint='ask for part="panes"')
    for _ in range(_LOOKS):
        held = _held(path, part)
        try:
            rows = rows_of(Path(path), held, part)
        except FileNotFoundError:
            continue  # compacted meanwhile, and not kept for those who read
        return _latest(rows, held.now) if now else rows
    raise SetupError(f"files of {path} vanish while they are read", hint="compact it less often, or keep files longer")


def rows_of(root: Path, held: Held, part: str) -> pl.DataFrame:
    """The rows of a part, in the order in which they were written."""
    types = held.columns.get(part, {})
    empty = pl.DataFrame(schema=kinds_of(types))
    found = [decoded(root / file.path, types) for file in held.files.values() if file.part == part]
    return pl.concat([empty, *found])


def _latest(rows: pl.DataFrame, by: dict[str, Any] | None) -> pl.DataFrame:
    if by is None:
        if rows.width:
            raise InvalidStep("these rows are no panes, and have no latest answers", hint="leave out now")
        return rows
    return rows.sort(by["order"], maintain_order=True).unique(by["of"], keep="last", maintain_order=True).filter(
        ~pl.col(by["retraction"])
    )  # fmt: skip


def _held(path: str | Path, part: str) -> Held:
    if part not in PARTS:
        raise InvalidStep(f"a folder has no part {part!r}", hint=f"choose one of {', '.join(PARTS)}")
    log = Log(Path(path))
    if not log.folder.is_dir():
        raise SetupError(f"{path} has no log of files that count", hint="give a folder that sl.folder(…) writes to")
    return log.held()
