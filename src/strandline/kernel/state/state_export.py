"""State on the move: all that the key groups of a step keep as plain frames, and back into key groups, more or fewer.

    "windows", "items:<name>", "owed"     open windows, what they hold beside their rows, the panes they owe
    "strips", "strips:items:<name>"       what windows share while they wait

Which key group and which slice a row belongs to follows from its key and its window, and when it must be looked at from
the step, so neither is kept here. Every key group of a step has come equally far, since all fold the same controls.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import polars as pl

from strandline.errors import StateError
from strandline.kernel.aggregation.accumulators import Combined, identity, merged, parts_of
from strandline.kernel.blocks.block import END, START
from strandline.kernel.state import slice_store
from strandline.kernel.state.partitioning import key_groups
from strandline.kernel.state.slice_rows import WINDOWS
from strandline.kernel.state.slice_store import INDEX, OWED, SETTLED, TOLD, Index, Kept, frames_of, read_index
from strandline.kernel.state.state_migrations import in_rows
from strandline.kernel.watermarks import FOREVER, Progress
from strandline.kernel.window import shared_slice_store, triggers
from strandline.kernel.window.panes import RETRACTION, Instant, deadlines
from strandline.kernel.window.shared_slice_store import STRIPS, Waiting
from strandline.kernel.window.shared_slices import shares
from strandline.model.steps import WindowedStep
from strandline.model.windows import Count

ITEMS: Final = "items:"
SHARED: Final = f"{STRIPS}:"
_GROUP: Final = "@group"

Frames = Mapping[str, pl.DataFrame]


@dataclass(frozen=True, slots=True)
class Moved:
    """What a step keeps, out of its key groups: how far it has come, the number of its batches, and frames."""

    progress: Progress = field(default_factory=Progress)
    turn: int = 0
    frames: Frames = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Open windows and strips."""
        return sum(self.frames[name].height for name in (WINDOWS, STRIPS) if name in self.frames)


@dataclass(frozen=True, slots=True)
class Fit:
    """What must be done to the state of a step before another definition of it can go on."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    new_trigger: bool = False


def gathered(groups: Iterable[Mapping[str, bytes]]) -> Moved:
    """What the key groups of one step keep, from their blocks."""
    found: dict[str, list[pl.DataFrame]] = {}
    known: list[Index] = []
    for blocks in groups:
        known.append(read_index(blocks))
        for place, frames_there in frames_of(blocks):
            before = SHARED if place.startswith(SHARED) else ""
            for name, frame in frames_there.items():
                found.setdefault(name if name == STRIPS else before + name, []).append(frame)
    if len({each.turn for each in known}) > 1 or any(each.progress != known[0].progress for each in known):
        raise StateError(
            "the key groups of one step have not come equally far",
            detail=f"watermarks {sorted({each.progress.watermark for each in known})}",
            hint="this is a defect in Strandline, or blocks of several moments were mixed",
        )
    frames = {name: pl.concat(each, how="diagonal_relaxed") for name, each in sorted(found.items())}
    return Moved(known[0].progress, known[0].turn, frames) if known else Moved()


def grouped(moved: Moved, keys: Sequence[str], ask: WindowedStep, groups: int) -> dict[int, dict[str, bytes]]:
    """The blocks of every key group, for a step that goes on with so many of them."""
    split = {name: _by_group(frame, keys, groups) for name, frame in moved.frames.items()}
    return {
        group: _blocks(
            Moved(moved.progress, moved.turn, {name: parts[group] for name, parts in split.items() if group in parts}),
            keys,
            ask,
        )
        for group in range(groups)
    }


def group_numbers(frame: pl.DataFrame, keys: Sequence[str], groups: int) -> pl.DataFrame:
    """A frame with the key group of each row in front, for whoever reads it elsewhere."""
    return frame.select(key_groups(frame.select(keys), groups).alias(_GROUP), pl.all())


def fitted(moved: Moved, ask: WindowedStep, fit: Fit) -> Moved:
    """State as another definition of its step would have it: a new aggregate begins with nothing in windows that are
    open, one that is gone is forgotten, and a new trigger begins anew."""
    frames = {name: frame for name, frame in _as_now(moved.frames, ask).items() if not _items_of(name, fit.removed)}
    for place in (WINDOWS, STRIPS, OWED):
        if place in frames:
            rows = frames[place].drop(_columns_of(frames[place], fit.removed, ask))
            empty = [] if place == OWED else [part for part in parts_of(ask) if part.name not in rows.columns]
            frames[place] = rows.with_columns(part.nothing.alias(part.name) for part in empty)
    if fit.new_trigger and WINDOWS in frames:
        old = [
            name for name in frames[WINDOWS].columns if name == triggers.ROOT or name.startswith(f"{triggers.ROOT}.")
        ]
        frames[WINDOWS] = frames[WINDOWS].drop(old).with_columns(**triggers.anew(ask.trigger, pl.col(SETTLED) > 0))
    return replace(moved, frames=frames)


def _as_now(frames: Frames, ask: WindowedStep) -> Frames:
    """Frames that an older release may have written."""
    now = dict(frames)
    for place, before in ((WINDOWS, ""), (STRIPS, SHARED)):
        if place in frames:
            items = _items(frames, before)
            now[place], left = in_rows(frames[place], items, ask)
            now = {name: each for name, each in now.items() if name not in {f"{before}{ITEMS}{n}" for n in items}}
            now |= {f"{before}{ITEMS}{name}": each for name, each in left.items()}
    return now


def missing(moved: Moved, keys: Sequence[str], ask: WindowedStep) -> list[str]:
    """What a step needs of its open windows that these frames do not have, each in words."""
    found = []
    for place in (WINDOWS, STRIPS):
        rows = moved.frames.get(place)
        if rows is None:
            continue
        needed = [*keys, START, END, *(part.name for part in parts_of(ask))]
        needed += list(slice_store.initial(ask)) if place == WINDOWS else []
        found += [f"{place} have no column {name}" for name in needed if name not in rows.columns]
    if STRIPS in moved.frames and not shares(ask):
        found.append("windows were kept in shared strips, and this step keeps each by itself")
    elif STRIPS not in moved.frames and WINDOWS in moved.frames and shares(ask):
        found.append("each window was kept by itself, and this step keeps them in shared strips")
    return found


def instant(moved: Moved) -> Instant:
    """The moment at which state stands still."""
    at, clock = moved.progress.watermark, moved.progress.clock
    return Instant(at, at, clock, clock, moved.turn)


def _by_group(frame: pl.DataFrame, keys: Sequence[str], groups: int) -> dict[int, pl.DataFrame]:
    numbered = frame.with_columns(key_groups(frame.select(keys), groups).alias(_GROUP))
    split = numbered.partition_by(_GROUP, as_dict=True, include_key=False, maintain_order=True)
    return {int(group): part for (group,), part in split.items()}


def _blocks(mine: Moved, keys: Sequence[str], ask: WindowedStep) -> dict[str, bytes]:
    """What one key group keeps, as it would have written it itself."""
    now = instant(mine)
    kept = Kept(mine.frames.get(WINDOWS), _items(mine.frames, ""), mine.frames.get(OWED))
    dues = (pl.lit(FOREVER), pl.lit(None, pl.Int64)) if isinstance(ask.window, Count) else deadlines(ask, now)
    writes, slices = slice_store.write_slices(kept, (), keys, ask, dues)
    shared, strips, _ = shared_slice_store.write(_waiting(mine.frames, keys, ask), Index(), keys, ask, now)
    found = {place: data for place, data in {**writes, **shared}.items() if data is not None}
    return {**found, INDEX: slice_store.write_index(Index(mine.progress, mine.turn, slices, strips), found)}


def _waiting(frames: Frames, keys: Sequence[str], ask: WindowedStep) -> Waiting:
    if STRIPS not in frames:
        return Waiting()
    rows = frames[STRIPS]
    # What was beside a slice is a row of its own for a strip that has one there.
    repeats = bool(rows.select(identity(keys)).is_duplicated().any())
    whole = merged([Combined(rows, _items(frames, SHARED), repeats)], keys, ask)
    slices = {} if whole is None else shared_slice_store.in_slices(whole, keys, ask)
    return Waiting(slices, frozenset(slices))


def _items(frames: Frames, before: str) -> dict[str, pl.DataFrame]:
    start = before + ITEMS
    return {name.removeprefix(start): frame for name, frame in frames.items() if name.startswith(start)}


def _items_of(name: str, aggregates: Sequence[str]) -> bool:
    """Whether a frame holds the items of one of these."""
    return any(name in (f"{ITEMS}{each}", f"{SHARED}{ITEMS}{each}") for each in aggregates)


def _columns_of(frame: pl.DataFrame, aggregates: Sequence[str], ask: WindowedStep) -> list[str]:
    """The columns that were kept for these, and nobody needs now."""
    needed = {part.name for part in parts_of(ask)} | {name for name, _ in ask.aggregates}
    told = {each for each in aggregates if RETRACTION in frame.columns}
    mine = [
        name
        for each in aggregates
        for name in frame.columns
        if name in (f"@{each}", f"{TOLD}{each}") or name in told or name.startswith(f"@{each}.")
    ]
    return [name for name in mine if name not in needed and name not in (START, END)]
