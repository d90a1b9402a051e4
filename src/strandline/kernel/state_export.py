"""Export the state of a step from its key groups as frames, and distribute exported frames over key groups again.

The key group and slice of a row follow from its key, so frames do not contain them. Every key group of a step has the
same progress, since all process the same control rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import polars as pl

from strandline.errors import StateError
from strandline.kernel.operator import Exported, KeyedOperator
from strandline.kernel.state.partitioning import key_groups
from strandline.kernel.state.slice_rows import WINDOWS
from strandline.kernel.state.slice_store import Index, frames_of, read_index

_GROUP: Final = "@group"


def export(groups: Iterable[Mapping[str, bytes]]) -> Exported:
    """Collect the frames of all key groups of a step from their blocks.

    The name of a frame is prefixed with the name of its store, except in the window store or if both names are equal.
    """
    found: dict[str, list[pl.DataFrame]] = {}
    known: list[Index] = []
    for blocks in groups:
        known.append(read_index(blocks))
        for place, frames in frames_of(blocks):
            store = place.partition(":")[0]
            for name, frame in frames.items():
                plain = store in {WINDOWS.name, name}
                found.setdefault(name if plain else f"{store}:{name}", []).append(frame)
    if len({each.batch_number for each in known}) > 1 or any(each.progress != known[0].progress for each in known):
        raise StateError(
            "the key groups of one step have different progress",
            detail=f"watermarks {sorted({each.progress.watermark for each in known})}",
            hint="this is a defect in Strandline, or blocks of several batches were mixed",
        )
    frames = {name: pl.concat(each, how="diagonal_relaxed") for name, each in sorted(found.items())}
    rows = sum(each.rows for each in known)
    return Exported(known[0].progress, known[0].batch_number, frames, rows) if known else Exported()


def distribute(exported: Exported, operator: KeyedOperator, groups: int) -> dict[int, dict[str, bytes]]:
    """Write the blocks of every key group, for this number of key groups."""
    split = {name: _by_group(frame, operator.keys, groups) for name, frame in exported.frames.items()}
    return {
        group: operator.blocks_of(
            Exported(
                exported.progress,
                exported.batch_number,
                {name: parts[group] for name, parts in split.items() if group in parts},
            )
        )
        for group in range(groups)
    }


def with_group_numbers(frame: pl.DataFrame, keys: Sequence[str], groups: int) -> pl.DataFrame:
    """Add the key group of each row as the first column."""
    return frame.select(key_groups(frame.select(keys), groups).alias(_GROUP), pl.all())


def _by_group(frame: pl.DataFrame, keys: Sequence[str], groups: int) -> dict[int, pl.DataFrame]:
    numbered = frame.with_columns(key_groups(frame.select(keys), groups).alias(_GROUP))
    split = numbered.partition_by(_GROUP, as_dict=True, include_key=False, maintain_order=True)
    return {int(group): part for (group,), part in split.items()}
