"""Emit one element per key and span of event time: the deduplication operator.

State of late elements has expired, so the operator cannot tell whether they are duplicates; they go to the late output.
Duplicates are counted as filtered.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.kernel.blocks.block import AT, INPUT, REASON, element_columns
from strandline.kernel.blocks.small_frames import only, without
from strandline.kernel.deduplicate.keep_first import keep_first
from strandline.kernel.deduplicate.keep_last import keep_last
from strandline.kernel.deduplicate.stores import FIRST, HASH, LAST, first_slices, with_deadline, with_hash, write_rows
from strandline.kernel.operator import PARTIAL, ROWS, WATERMARK, Batch, BatchResult, Exported, Fit, Prepared
from strandline.kernel.single_elements import by_key_group, with_valid_time
from strandline.kernel.state.partitioning import key_slices
from strandline.kernel.state.slice_rows import Store
from strandline.kernel.state.slice_store import INDEX, Index, write_index
from strandline.kernel.watermarks import NEVER, Rule
from strandline.model.deduplicate import Deduplicate, Keep
from strandline.model.elements import TimeDomain
from strandline.model.panes import LateReason

_ROW: Final = "@row"
"""Number of an element in its batch."""

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DeduplicateOperator:
    """The deduplication operator for given key columns."""

    definition: Deduplicate
    keys: tuple[str, ...]

    @property
    def takes_signs(self) -> bool:
        return False

    @property
    def _store(self) -> Store:
        return FIRST if self.definition.keep is Keep.FIRST else LAST

    def admit(self, elements: pl.DataFrame, rule: Rule | None, clock: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        if self.definition.time is TimeDomain.PROCESSING:
            elements = elements.with_columns(pl.lit(clock, pl.Int64).alias(AT))
        return with_valid_time(elements, rule, clock)

    def probe(self, elements: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        return elements, None

    def prepare(self, elements: pl.DataFrame, groups: int, horizon: int | None) -> Prepared:  # noqa: ARG002 - a part of the protocol
        if elements.is_empty():
            return Prepared({}, 0)
        return by_key_group(elements, self.keys, groups)

    def play(self, batch: Batch) -> BatchResult:
        elements = [block.frames[ROWS] for block in batch.blocks if ROWS in block.frames]
        timely: pl.DataFrame | None = None
        late: pl.DataFrame | None = None
        if elements:
            timely, late = self._split_late(pl.concat(elements, how="diagonal_relaxed"), batch.now.before)
        timely_count = 0 if timely is None else timely.height
        if self.definition.keep is Keep.FIRST:
            key_rows = None if timely is None else self._key_columns(timely)
            fresh, writes, slices = keep_first(batch, key_rows, self.keys, self.definition)
            rows = None
            if timely is not None and fresh is not None and fresh.height:
                rows = timely[np.sort(fresh[_ROW].to_numpy())]
            duplicates = timely_count - (0 if rows is None else rows.height)
        else:
            hashed = None if timely is None else with_hash(timely, self.keys)
            rows, duplicates, writes, slices = keep_last(batch, hashed, self.keys, self.definition)
        stores = {self._store.name: slices} if slices else {}
        emitted = None if rows is None else without(rows, (INPUT,))
        return BatchResult(
            writes, stores, emitted, late, timely_count - duplicates, 0 if late is None else late.height, duplicates
        )

    def _split_late(self, elements: pl.DataFrame, watermark: int) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Split off elements so far behind the watermark that the state of their duplicates may have expired."""
        if self.definition.within is None or watermark == NEVER:
            return elements, None
        behind = elements[AT].to_numpy() <= watermark - self.definition.lateness.ms
        if not bool(np.any(behind)):
            return elements, None
        late = elements.filter(pl.Series(behind)).with_columns(
            pl.lit(LateReason.EXPIRED.value).alias(REASON),
            pl.lit(watermark, pl.Int64).alias(WATERMARK),
            pl.lit(False).alias(PARTIAL),
        )
        return elements.filter(pl.Series(~behind)), late.sort(element_columns(late))

    def _key_columns(self, elements: pl.DataFrame) -> pl.DataFrame:
        """Return keys, time, hash and row number of elements, grouped by key, sorted by time and position.

        Other columns are gathered once, for the emitted elements only.
        """
        hashed = with_hash(only(elements, [*dict.fromkeys((*self.keys, AT))]), self.keys)
        hashes = hashed[HASH].to_numpy()
        order = np.argsort(hashes, kind="stable")
        in_order = hashes[order]
        repeats = np.flatnonzero(in_order[1:] == in_order[:-1])
        if len(repeats):
            repeated = np.zeros(len(order), np.bool_)
            repeated[repeats] = repeated[repeats + 1] = True
            places = np.flatnonzero(repeated)
            order[places] = self._by_position(elements, hashes, order[places])
        return hashed[order].with_columns(pl.Series(_ROW, order))

    def _by_position(self, elements: pl.DataFrame, hashes: Longs, rows: Longs) -> Longs:
        """Sort rows of equal hashes by key, time and position; different keys may have one hash."""
        names = [*self.keys, AT, *element_columns(elements)]
        selected = only(elements, [*dict.fromkeys(names)])[rows]
        selected = selected.with_columns(pl.Series(HASH, hashes[rows]), pl.Series(_ROW, rows))
        return selected.sort(HASH, *names, maintain_order=True)[_ROW].to_numpy()

    def blocks_of(self, exported: Exported) -> dict[str, bytes]:
        rows = exported.frames.get(self._store.rows)
        if rows is None or rows.is_empty():
            return {INDEX: write_index(Index(exported.progress, exported.batch_number))}
        ready = with_deadline(with_hash(rows, self.keys), self.definition)
        by_time = self._store is FIRST
        numbers = first_slices(ready, self.keys, self.definition) if by_time else key_slices(only(ready, self.keys))
        writes, slices = write_rows(self._store, ready, numbers, {})
        found = {place: data for place, data in writes.items() if data is not None}
        index = Index(exported.progress, exported.batch_number, {self._store.name: slices})
        return {**found, INDEX: write_index(index, found)}

    def fitted(self, exported: Exported, fit: Fit) -> Exported:  # noqa: ARG002 - a part of the protocol
        return exported

    def missing(self, exported: Exported) -> list[str]:
        found = (
            [f"there is no frame {self._store.rows}"]
            if exported.frames and self._store.rows not in exported.frames
            else []
        )
        rows = exported.frames.get(self._store.rows)
        needed = [] if rows is None else [name for name in (*self.keys, AT) if name not in rows.columns]
        return found + [f"{self._store.rows} has no column {name}" for name in needed]
