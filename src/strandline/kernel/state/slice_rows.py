"""Locate the valid rows of a slice in its block and its deltas."""

import itertools
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.kernel.blocks.block import Frames, Packed

ROW: Final = "@row"
"""Position of a row, counted through the slice and its deltas."""
GONE: Final = "gone"
"""Frame with the positions of rows that a delta replaced or deleted."""

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Store:
    """Name and layout of one slice store of an operator.

    "<name>:<n>"                         slice n: its rows and other frames
    "<deltas>:<n>", "<deltas>:<n>:2" …   current rows of slice n, and the positions that they replace
    """

    name: str
    rows: str
    """Name of the frame with the rows."""

    @property
    def deltas(self) -> str:
        """Prefix of the places of deltas."""
        return _DELTAS.get(self.name, f"{self.name}.deltas")

    def place(self, number: int) -> str:
        return f"{self.name}:{number}"

    def delta_places(self, number: int, there: int | Container[str]) -> list[str]:
        """Return the places of this many deltas of a slice, or of the deltas in a set of places."""
        first = f"{self.deltas}:{number}"
        places = itertools.chain([first], (f"{first}:{each}" for each in itertools.count(2)))
        if isinstance(there, int):
            return list(itertools.islice(places, there))
        return list(itertools.takewhile(there.__contains__, places))


_DELTAS: Final = {"slice": "changes"}
"""The places of the oldest store are persisted and must stay."""

WINDOWS: Final = Store("slice", "windows")
"""Open windows."""
SHARED: Final = Store("strips", "strips")
"""Shared slices of overlapping windows."""


def store_of(place: str, stores: Sequence[Store] = (WINDOWS, SHARED)) -> Store:
    """Return the store that a place belongs to; a store that is not listed keeps its rows under its own name."""
    name = place.partition(":")[0]
    return next((each for each in stores if each.name == name), Store(name, name))


def is_delta(place: str) -> bool:
    """Tell whether a place holds a delta."""
    kind = place.partition(":")[0]
    return kind in _DELTAS.values() or kind.endswith(".deltas")


def apply_deltas(store: Store, frames: Frames, deltas: Sequence[Packed]) -> Frames:
    """Apply deltas to the frames of a slice."""
    if not deltas:
        return frames
    rows = [frames[store.rows], *(each.frame(store.rows).drop(ROW, strict=False) for each in deltas)]
    left = valid_rows(sum(each.height for each in rows), (replaced_rows(store, each) for each in deltas))
    return {**frames, store.rows: pl.concat(rows, how="diagonal_relaxed").filter(pl.Series(left))}


def valid_rows(rows: int, gone: Iterable[Places]) -> npt.NDArray[np.bool_]:
    """Mark the rows that are still valid."""
    left = np.ones(rows, np.bool_)
    for places in gone:
        left[places] = False
    return left


def replaced_rows(store: Store, delta: Packed) -> Places:
    """Read the positions that a delta invalidates."""
    # State of form 2 kept each position in the row that replaced it.
    name = GONE if GONE in delta.names else store.rows
    return delta.frame(name, [ROW])[ROW].drop_nulls().to_numpy()
