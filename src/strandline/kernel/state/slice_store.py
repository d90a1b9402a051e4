"""Keep the state of a key group in slices under one index.

    "index"        the progress of the inputs; per slice its rows, bytes, deadlines and hold; a digest per block
    "<store>:<n>"  the frames of slice n of a store; its deltas have places of their own (`slice_rows`, `slice_deltas`)

A step reads the index, then the slices that its input touches or a deadline makes due, and writes only these slices. An
operator may have several stores under one index. Rows have the columns DUE_WATERMARK, DUE_CLOCK and HOLD when they are
written; only HOLD is stored.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from strandline.errors import StateError
from strandline.kernel.blocks.block import Block, Frames, open_block, pack, unpack
from strandline.kernel.blocks.small_frames import stacked, without
from strandline.kernel.state.slice_rows import SHARED, WINDOWS, Store, apply_deltas, is_delta, store_of
from strandline.kernel.watermarks import Progress, progress_from_facts, progress_to_facts

FORM: Final = 5
"""Version of the layout. Form 1 kept picked elements and distinct values as items beside the row of a window; form 2
kept replaced positions inside deltas; form 3 had no side block for shared slices; form 4 kept the progress of each
partition with the names of its fields."""
INDEX: Final = "index"
BESIDE: Final = f"{SHARED.name}:beside"
"""Place of the side block with additions to shared slices, and the name of its store in the index."""
HOLD: Final = "@hold"
"""Time below which a row holds the output watermark."""
DUE_WATERMARK, DUE_CLOCK = "@due_watermark", "@due_clock"
NOT_STORED: Final = (DUE_WATERMARK, DUE_CLOCK)
"""Columns that rows have only while they are written."""
_LEGACY: Final = {WINDOWS.name: "slices", SHARED.name: "strips"}
"""Names of the two oldest stores in the facts of an index."""
_ENTRY: Final = 7
"""Number of values of a slice in the index."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice in the index: its rows and bytes, the earliest watermark and clock at which it is due, its hold."""

    rows: int
    size: int
    due_watermark: int
    due_clock: int | None
    hold: int | None
    gone: int = 0
    """Stored rows that are no longer valid."""
    deltas: int = 0
    """Number of deltas."""


Slices = Mapping[int, Slice]


@dataclass(frozen=True, slots=True)
class Index:
    """The progress so far, the number of batches, and the slices of every store."""

    progress: Progress = field(default_factory=Progress)
    batch_number: int = 0
    stores: Mapping[str, Slices] = field(default_factory=dict)
    form: int = FORM
    digests: Mapping[str, str] = field(default_factory=dict)
    """Digests of all blocks except the index itself: a cached block with this digest need not be read again."""

    def store(self, name: str) -> Slices:
        """Return the slices of a store by number."""
        return self.stores.get(name, {})

    @property
    def entries(self) -> Sequence[Slice]:
        return [entry for slices in self.stores.values() for entry in slices.values()]

    @property
    def rows(self) -> int:
        return sum(entry.rows for entry in self.entries)

    @property
    def size(self) -> int:
        """Return the bytes of all slices."""
        return sum(entry.size for entry in self.entries)

    @property
    def due_clock(self) -> int | None:
        """Return the clock at which a slice is due without further input; None if none is."""
        entries = self.entries
        if any(entry.due_watermark <= self.progress.watermark for entry in entries):
            return self.progress.clock
        return min((entry.due_clock + 1 for entry in entries if entry.due_clock is not None), default=None)

    @property
    def output_watermark(self) -> int:
        """Return the output watermark: the watermark of the step, but below the hold of every row."""
        holds = [entry.hold - 1 for entry in self.entries if entry.hold is not None]
        return min([self.progress.watermark, *holds])


def due(slices: Slices, progress: Progress) -> set[int]:
    """Return the slices with a deadline that this progress reaches."""
    return {
        number
        for number, entry in slices.items()
        if entry.due_watermark <= progress.watermark
        or (entry.due_clock is not None and entry.due_clock < progress.clock)
    }


def read_index(held: Mapping[str, bytes]) -> Index:
    """Read the index; return an empty one for a key group without state."""
    data = held.get(INDEX)
    if data is None:
        return Index()
    facts = unpack(data, INDEX).facts
    form = facts.get("form", 1)
    if form > FORM:
        raise StateError(
            f"the state of this job has form {form}",
            detail=f"this Strandline reads forms 1 to {FORM}",
            hint="a later release wrote it: run the job with that release",
        )
    stores = {name: _from_facts(facts[legacy]) for name, legacy in _LEGACY.items()}
    if facts.get("beside"):
        stores[BESIDE] = {0: Slice(*facts["beside"])}
    stores |= {name: _from_facts(entries) for name, entries in facts.get("stores", {}).items()}
    found = {name: slices for name, slices in stores.items() if slices}
    return Index(progress_from_facts(facts["progress"]), facts["turn"], found, form, facts.get("digests", {}))


def digests_in(index: bytes) -> Mapping[str, str]:
    """Read the digests of a packed index; releases before 0.1 wrote none."""
    found: Mapping[str, str] = unpack(index, INDEX).facts.get("digests", {})
    return found


def digest(data: bytes) -> str:
    """Hash the bytes of a block to 64 bits: enough to tell a block from the earlier one at its place."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def write_index(index: Index, writes: Mapping[str, bytes | None] | None = None, before: Index | None = None) -> bytes:
    """Pack an index with the digests of all blocks that exist after these writes."""
    writes, known = writes or {}, (before or index).digests
    left = {place: was for place, was in known.items() if place not in writes}
    new = {place: digest(data) for place, data in writes.items() if data is not None}
    beside = index.store(BESIDE).get(0)
    others = {name: _to_facts(slices) for name, slices in index.stores.items() if name not in {*_LEGACY, BESIDE}}
    facts = {
        "progress": progress_to_facts(index.progress),
        "turn": index.batch_number,
        **{legacy: _to_facts(index.store(name)) for name, legacy in _LEGACY.items()},
        "beside": None if beside is None else _values(beside),
        **({"stores": others} if others else {}),
        "form": FORM,
        "digests": left | new,
    }
    return pack(Block(facts=facts))


def _from_facts(entries: Mapping[str, Sequence[Any]]) -> dict[int, Slice]:
    # Form 2 had at most one delta, and did not record how many rows it replaced.
    return {
        int(number): Slice(*entry, *([1] if len(entry) == _ENTRY - 1 and entry[-1] else []))
        for number, entry in entries.items()
    }


def _to_facts(slices: Slices) -> dict[str, list[int | None]]:
    return {str(number): _values(entry) for number, entry in sorted(slices.items())}


def _values(entry: Slice) -> list[int | None]:
    return [entry.rows, entry.size, entry.due_watermark, entry.due_clock, entry.hold, entry.gone, entry.deltas]


def read_slices(
    held: Mapping[str, bytes],
    store: Store,
    numbers: Iterable[int],
    slices: Slices | None = None,
    row_filter: Callable[[int, Frames], Frames] | None = None,
) -> dict[str, pl.DataFrame]:
    """Read the frames of these slices, apply deltas, filter each slice, and concatenate the frames of each name."""
    found: dict[str, list[pl.DataFrame]] = {}
    for number in sorted(numbers):
        place = store.place(number)
        data = held.get(place)
        if data is not None:
            many = slices[number].deltas if slices and number in slices else 0
            deltas = [open_block(held[each], each) for each in store.delta_places(number, many)]
            frames = apply_deltas(store, unpack(data, place).frames, deltas)
            for name, frame in (frames if row_filter is None else row_filter(number, frames)).items():
                found.setdefault(name, []).append(frame)
    return {name: stacked(each) for name, each in found.items()}


def pack_slice(store: Store, rows: pl.DataFrame, others: Frames) -> tuple[bytes, Slice]:
    """Pack the rows of a slice with its other frames; return the bytes and the index entry."""
    data = pack(Block({**others, store.rows: without(rows, NOT_STORED)}))
    hold = _least(rows[HOLD]) if HOLD in rows.columns else None
    return data, Slice(rows.height, len(data), _least(rows[DUE_WATERMARK]), _least(rows[DUE_CLOCK]), hold)


def by_slice(frame: pl.DataFrame, numbers: pl.Series) -> dict[int, pl.DataFrame]:
    """Split rows by slice number, in order of the numbers, so that a replayed batch writes the same bytes."""
    if not frame.height:
        return {}
    if numbers.min() == numbers.max():
        return {int(numbers[0]): frame}
    split = frame.with_columns(numbers.alias("@slice")).partition_by(
        "@slice", as_dict=True, maintain_order=True, include_key=False
    )
    return {int(number): split[number,] for (number,) in sorted(split)}


def _least(column: pl.Series) -> Any:
    return column.min()


def frames_of(blocks: Mapping[str, bytes], prefix: str = "") -> Iterator[tuple[str, Frames]]:
    """Yield every slice of a key group with its place and its frames, with deltas applied.

    Error messages put the prefix before the place.
    """
    for place, data in sorted(blocks.items()):
        if place == INDEX or is_delta(place):
            continue
        store, number = store_of(place), place.partition(":")[2]
        places = store.delta_places(int(number), blocks) if number.lstrip("-").isdigit() else ()
        deltas = [open_block(blocks[each], prefix + each) for each in places]
        yield place, apply_deltas(store, unpack(data, prefix + place).frames, deltas)
