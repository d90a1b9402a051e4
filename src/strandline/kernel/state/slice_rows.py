"""Where the windows of a slice stand: in its block and in those of its changes, and which of their rows are true."""

import itertools
from collections.abc import Container, Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.kernel.aggregation.accumulators import Frames
from strandline.kernel.blocks.block import Packed

SLICE, CHANGES = "slice", "changes"
WINDOWS: Final = "windows"
ROW: Final = "@row"
"""The place of a row among those of a slice and of its changes, counted through."""
GONE: Final = "gone"
"""The frame of places whose rows are gone: changes stand for them, or they are no more."""

Places = npt.NDArray[np.int64]


def as_changed(frames: Frames, changes: Sequence[Packed]) -> Frames:
    """The frames of a slice with changes in place of the windows they stand for."""
    if not changes:
        return frames
    rows = [frames[WINDOWS], *(each.frame(WINDOWS).drop(ROW, strict=False) for each in changes)]
    left = alive(sum(each.height for each in rows), map(gone_by, changes))
    return {**frames, WINDOWS: pl.concat(rows, how="diagonal_relaxed").filter(pl.Series(left))}


def alive(rows: int, gone: Iterable[Places]) -> npt.NDArray[np.bool_]:
    """Which of so many rows are still true."""
    left = np.ones(rows, np.bool_)
    for places in gone:
        left[places] = False
    return left


def gone_by(changes: Packed) -> Places:
    """The places that changes leave nothing at."""
    # In the second form, each row beside the one it stands for.
    name = GONE if GONE in changes.names else WINDOWS
    return changes.frame(name, [ROW])[ROW].drop_nulls().to_numpy()


def place_of(number: int) -> str:
    return f"{SLICE}:{number}"


def changes_of(number: int, there: int | Container[str]) -> list[str]:
    """The places of so many blocks of changes to a slice, or of those that are there."""
    first = f"{CHANGES}:{number}"
    places = itertools.chain([first], (f"{first}:{each}" for each in itertools.count(2)))
    if isinstance(there, int):
        return list(itertools.islice(places, there))
    return list(itertools.takewhile(there.__contains__, places))
