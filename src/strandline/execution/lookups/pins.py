"""Store the answers that a task used, with its batch, so that the batch gets the same ones if it is repeated.

A folder holds the files of one batch: `<pins>/<batch>/<lookup>.<task>-<number>.pin`. A file is durable before the rows
leave the task. The files of a batch are deleted when a later batch has been delivered.
"""

import hashlib
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import polars as pl

from strandline.kernel.blocks.block import Block, pack, unpack
from strandline.kernel.join.lookup_join import answer_schema, key_columns
from strandline.model.lookup_join import LookupJoin
from strandline.ports.durable_files import sync_folder, write_once

FOLDER: Final = "lookups"
"""Folder of pinned answers in a job's folder."""
_ANSWERS: Final = "answers"


def pinned(folder: Path, lookup: str, task: str, join: LookupJoin) -> pl.DataFrame:
    """Return the answers that the batch has used before: those of this task first, then those of others."""
    own = _own(folder, lookup, task)
    files = [*own, *(each for each in sorted(folder.glob(f"{_digest(lookup)}.*.pin")) if each not in own)]
    if not files:
        return pl.DataFrame(schema=answer_schema(join))
    found = [unpack(each.read_bytes(), str(each)).frames.get(_ANSWERS) for each in files]
    known = pl.concat([each for each in found if each is not None])
    return known.unique(key_columns(join), keep="first", maintain_order=True)


def pin(folder: Path, lookup: str, task: str, answers: pl.DataFrame) -> None:
    """Store the answers of a task, beside those that it has stored for the batch before."""
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)
    number = len(_own(folder, lookup, task))
    write_once(folder / f"{_digest(lookup)}.{task}-{number}.pin", pack(Block({_ANSWERS: answers})), 0o600)


def forget(pins: Path, before: int) -> None:
    """Delete the answers of batches before this one."""
    for each in _batches(pins):
        if int(each.name) < before:
            shutil.rmtree(each, ignore_errors=True)


def _batches(pins: Path) -> Iterable[Path]:
    return [each for each in pins.iterdir() if each.name.isdecimal()] if pins.is_dir() else []


def _own(folder: Path, lookup: str, task: str) -> list[Path]:
    return sorted(folder.glob(f"{_digest(lookup)}.{task}-*.pin"))


def _digest(lookup: str) -> str:
    return hashlib.sha256(lookup.encode()).hexdigest()[:16]
