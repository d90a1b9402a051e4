"""Find the row of a table that each retraction removes: an equal row of the same time, or else the latest equal row.

Rows that were inserted in the same batch are removed before stored rows, so that they are never written.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from strandline.kernel.blocks.block import AT, OWN, SIGN
from strandline.kernel.join.pairs import Longs
from strandline.kernel.join.table_rows import Flags, StoredRows

_ROW = "@row"


@dataclass(slots=True, eq=False)
class Removed:
    """What the retractions of a batch remove from one table."""

    stored: Flags
    """Stored rows that are removed."""
    new: Flags
    """Changes of the batch that are insertions and are removed at once."""
    unmatched: Flags
    """Changes of the batch that are retractions of a row that does not exist."""


def remove_retracted(stored: StoredRows, alive: Flags, changes: pl.DataFrame, keys: Longs) -> Removed:
    """Match the retractions of a batch with rows of their table. `keys` has the key of each change."""
    removed = Removed(
        np.zeros(stored.height, np.bool_), np.zeros(changes.height, np.bool_), np.zeros(changes.height, np.bool_)
    )
    signs, times = changes[SIGN].to_numpy(), changes[AT].to_numpy()
    open_ = np.flatnonzero(signs < 0)
    for same_time in (True, False):
        if not len(open_):
            break
        new = np.flatnonzero((signs > 0) & ~removed.new & np.isin(keys, keys[open_]))
        old = np.flatnonzero(alive & ~removed.stored & np.isin(stored.keys, keys[open_]))
        if same_time:
            old = old[np.isin(stored.times[old], times[open_])]
        groups = _equal_rows([changes[new], stored.at(old), changes[open_]], same_time=same_time)
        candidates, retractions = groups[: len(new) + len(old)], groups[len(new) + len(old) :]
        latest = np.argsort(-np.concatenate([times[new], stored.times[old]]), kind="stable")
        chosen, matched = _paired(candidates, latest, retractions)
        removed.new[new[chosen[chosen < len(new)]]] = True
        removed.stored[old[chosen[chosen >= len(new)] - len(new)]] = True
        open_ = np.delete(open_, matched)
    removed.unmatched[open_] = True
    return removed


def _equal_rows(frames: list[pl.DataFrame], *, same_time: bool) -> Longs:
    """Number rows so that equal rows have equal numbers; of internal columns only the time is compared, if asked."""
    rows = pl.concat([each for each in frames if each.width], how="diagonal_relaxed")
    names = [name for name in rows.columns if not name.startswith(OWN) or (same_time and name == AT)]
    return first_equal(rows, names)


def first_equal(rows: pl.DataFrame, names: list[str]) -> Longs:
    """Return for each row the number of the first row that is equal in these columns."""
    if not names:
        return np.zeros(rows.height, np.int64)
    found = rows.with_row_index(_ROW).select(pl.col(_ROW).first().over(names))[_ROW]
    return found.cast(pl.Int64).to_numpy()


def _paired(candidates: Longs, order: Longs, wanted: Longs) -> tuple[Longs, Longs]:
    """Pair equal numbers one to one; candidates in the given order. Return positions on both sides."""
    one, one_rank = _ranked(candidates, order)
    other, other_rank = _ranked(wanted, np.arange(len(wanted)))
    many = len(candidates) + len(wanted) + 1
    _, left, right = np.intersect1d(
        candidates[one] * many + one_rank, wanted[other] * many + other_rank, assume_unique=True, return_indices=True
    )
    return one[left], other[right]


def _ranked(groups: Longs, order: Longs) -> tuple[Longs, Longs]:
    """Sort positions by group, and number those of each group in the given order."""
    places = order[np.argsort(groups[order], kind="stable")]
    in_order = groups[places]
    return places, np.arange(len(places)) - np.searchsorted(in_order, in_order, "left")


def without_cancelled(rows: pl.DataFrame, keys: Longs) -> Flags | None:
    """Mark the rows that stay when equal insertions and retractions of a key cancel; None if all do."""
    signs = rows[SIGN].to_numpy()
    both = np.intersect1d(keys[signs > 0], keys[signs < 0])
    places = np.flatnonzero(np.isin(keys, both))
    if not len(places):
        return None
    names = [name for name in rows.columns if name != SIGN]
    hashes = rows[places].select(names).hash_rows().to_numpy()
    signed = signs[places]
    twice = np.isin(hashes, np.intersect1d(hashes[signed > 0], hashes[signed < 0]))
    places = places[twice]
    if not len(places):
        return None
    groups, signed = first_equal(rows[places], names), signs[places]
    added, taken = np.flatnonzero(signed > 0), np.flatnonzero(signed < 0)
    one, other = _paired(groups[added], np.arange(len(added)), groups[taken])
    stays = np.ones(rows.height, np.bool_)
    stays[places[added[one]]] = False
    stays[places[taken[other]]] = False
    return stays
