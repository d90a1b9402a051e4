"""Show the state of a job as tables: the rows of each step with readable names and times, and the slices.

slices           a row for each slice of each key group: rows, bytes, the oldest window in it
step_0           the state of keyed step 0, such as open windows: key group, slice, keys, bounds, aggregates
step_0_strips    slices that overlapping windows share until their end
step_0_…         items that windows hold, one table for each aggregate that needs them
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import polars as pl

from strandline.errors import SetupError
from strandline.execution.keyed_step import instant
from strandline.kernel.blocks.block import AT, END, OWN, START
from strandline.kernel.state.slice_rows import SHARED, WINDOWS, store_of
from strandline.savepoints.state_reader import JobState, StateSlice

SLICES: Final = "slices"
_HIDDEN: Final = ("@hash",)
_BOUNDS: Final = (START, END)
_PLACE: Final = ("key_group", "slice")


@dataclass(frozen=True, slots=True)
class Retention:
    """The state of a step and its retention, as `explain` describes them."""

    step: int
    words: str


def tables_of(state: JobState) -> dict[str, pl.DataFrame]:
    """Return all tables of a state by name."""
    slices = [each for group in state.groups for each in group.slices()]
    found: dict[str, list[pl.DataFrame]] = {}
    for each in slices:
        for name, frame in each.frames.items():
            found.setdefault(_table(each, name), []).append(_plain(frame, each))
    tables = {name: pl.concat(frames, how="diagonal_relaxed") for name, frames in sorted(found.items())}
    return {SLICES: _slices(slices), **tables}


def key_groups_of(state: JobState) -> pl.DataFrame:
    """Return a row for each key group of each step: rows, bytes, the oldest window, the watermark."""
    rows = []
    for group in state.groups:
        slices = list(group.slices())
        rows.append(
            {
                "step": group.step,
                "key_group": group.group,
                "partition": group.partition,
                "rows": sum(each.rows for each in slices),
                "bytes": group.size,
                "oldest": min((at for each in slices if (at := _oldest(each)) is not None), default=None),
                "watermark": group.index.progress.watermark,
            }
        )
    kinds = {"step": pl.Int64, "key_group": pl.Int64, "partition": pl.Int64, "rows": pl.Int64, "bytes": pl.Int64,
             "oldest": pl.Int64, "watermark": pl.Int64}  # fmt: skip
    return pl.DataFrame(rows, schema=kinds).with_columns(instant(name).alias(name) for name in ("oldest", "watermark"))


def chosen(
    table: pl.DataFrame, key: str | None, window: datetime | None, keys: Sequence[str] | None = None
) -> pl.DataFrame:
    """Filter on a key, given as the values of its columns with commas between them, and on an instant in the window."""
    keys = keys_of(table) if keys is None else keys
    if key is not None:
        values = _values(key, len(keys))
        if len(values) != len(keys):
            raise SetupError(
                f"keys have {len(keys)} columns here; the number of values in {key!r} is {len(values)}",
                hint=f"give {','.join(keys)}",
            )
        equal = (pl.col(name).cast(pl.String) == value for name, value in zip(keys, values, strict=True))
        table = table.filter(pl.all_horizontal(equal))
    if window is not None:
        if "window_start" not in table.columns:
            raise SetupError("this step has no windows", hint="leave --window out")
        start, end = pl.col("window_start"), pl.col("window_end")
        table = table.filter((start.is_null() | (start <= window)) & (end.is_null() | (end > window)))
    return table


def keys_of(table: pl.DataFrame) -> list[str]:
    """Return the key columns: those between the slice and the window bounds."""
    names = table.columns
    return names[len(_PLACE) : names.index("window_start")]


def retention_of(stages: str) -> list[Retention]:
    """Read the retention of each step from the stages that a job's identity stores."""
    found: list[Retention] = []
    step = 0
    for line in stages.splitlines():
        title, words = line[:10].strip(), line[10:].strip()
        if title.startswith("keyed"):
            step = int(title.removeprefix("keyed").strip() or 0)
        if words.startswith("keeps "):
            found.append(Retention(step, words))
    return found


def _table(of: StateSlice, frame: str) -> str:
    """Return the table name of a frame. The main rows of a step have the name of the step."""
    is_main = frame == store_of(of.kind).rows and of.kind != SHARED.name
    return f"step_{of.step}" if is_main else f"step_{of.step}_{frame.replace(':', '_')}"


def _plain(frame: pl.DataFrame, of: StateSlice) -> pl.DataFrame:
    """Select key group, slice, keys, bounds as timestamps, and the kernel's columns without their @ prefix."""
    place = [pl.lit(of.group, pl.Int64).alias(_PLACE[0]), pl.lit(of.number, pl.Int64).alias(_PLACE[1])]
    keys = [name for name in frame.columns if not name.startswith(OWN)]
    bounds = [instant(name).alias(f"window_{name.removeprefix(OWN)}") for name in _BOUNDS if name in frame.columns]
    used = {*keys, *_PLACE, "window_start", "window_end"}
    own = [pl.col(name).alias(_public_name(name, used))
           for name in frame.columns if name.startswith(OWN) and name not in (*_BOUNDS, *_HIDDEN)]  # fmt: skip
    if of.kind not in (WINDOWS.name, SHARED.name) and AT in frame.columns:
        bounds.append(instant(AT).alias("event_time"))
        own = [each for each in own if each.meta.output_name() not in ("at", "kept_at")]
    return frame.select(*place, *keys, *bounds, *own)


def _public_name(name: str, used: set[str]) -> str:
    plain = name.removeprefix(OWN)
    return f"kept_{plain}" if plain in used else plain


def _slices(slices: Sequence[StateSlice]) -> pl.DataFrame:
    rows: list[Mapping[str, Any]] = [
        {"step": each.step, "key_group": each.group, "kind": each.kind, "slice": each.number, "rows": each.rows,
         "bytes": each.size, "oldest": _oldest(each)}
        for each in slices
    ]  # fmt: skip
    kinds = {"step": pl.Int64, "key_group": pl.Int64, "kind": pl.String, "slice": pl.Int64, "rows": pl.Int64,
             "bytes": pl.Int64, "oldest": pl.Int64}  # fmt: skip
    return pl.DataFrame(rows, schema=kinds).with_columns(instant("oldest").alias("oldest"))


def _oldest(each: StateSlice) -> int | None:
    """Return the start of its first window, or the time of its first row, in milliseconds."""
    times = ((frame, START if START in frame.columns else AT) for frame in each.frames.values() if frame.height)
    starts = [_least(frame[name]) for frame, name in times if name in frame.columns]
    return min(starts, default=None)


def _least(column: pl.Series) -> int:
    return int(column.min())  # type: ignore[arg-type] # bounds are whole numbers


def _values(key: str, columns: int) -> list[str]:
    """Split a key at commas, unless it has one column: its value may contain commas."""
    return [key] if columns == 1 else list(_split(key))


def _split(key: str) -> Iterator[str]:
    return (part.strip() for part in key.split(","))
