"""Merge sessions of all keys at once: sort by start, compare with the running maximum of ends, number the groups.

New spans of a batch merge with the open sessions first; only then are elements checked for lateness. A merged session
has new bounds: panes of its parts wait to be retracted, contents are combined, and triggers merge.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.kernel.aggregation.accumulators import (
    identity,
    items_of,
    merged_parts,
    picks_of,
    plain_parts,
    sums_of,
    together,
    wide_sums,
)
from strandline.kernel.aggregation.first_last import ranked
from strandline.kernel.aggregation.overflow import without_empty_carries
from strandline.kernel.blocks.block import END, START
from strandline.kernel.state.slice_store import HOLD
from strandline.kernel.window import triggers
from strandline.kernel.window.assign import expires, max_timestamp
from strandline.kernel.window.panes import OWNER_END, OWNER_START, last_panes
from strandline.kernel.window.window_rows import (
    ADDED,
    ARRIVED,
    CLOSED,
    LAST_TIMING,
    NON_EARLY_COUNT,
    PANE_COUNT,
    OpenWindows,
)
from strandline.model.panes import Accumulation, LateReason, PaneTimestamp
from strandline.model.steps import WindowedStep
from strandline.model.windows import Touching

_LONGEST: Final = 1 << 62
COVER_START, COVER_END = "@cover_start", "@cover_end"
"""The bounds of the session that contains a span after merging."""


@dataclass(frozen=True, slots=True)
class SessionMerges:
    """The merged session of each open session (`live`) and new span (`fresh`), with the reason if it is late."""

    live: pl.DataFrame
    fresh: pl.DataFrame


def find_merges(
    live: pl.DataFrame | None,
    spans: pl.DataFrame,
    keys: Sequence[str],
    step: WindowedStep,
    touching: Touching,
    before: int,
) -> SessionMerges:
    """Find the merged session of every open session and every new span, with the reason where elements are late."""
    names = identity(keys)
    closed = None if live is None else live.filter(CLOSED).select(names)
    open_sessions = None if live is None else live.filter(~pl.col(CLOSED)).select(*names, pl.lit(True).alias("@live"))
    new = spans.select(names).unique().with_columns(pl.lit(False).alias("@live"))
    both = pl.concat([frame for frame in (open_sessions, new) if frame is not None], how="vertical_relaxed")
    covered = _with_joined(cover(both, keys, touching))
    covers = covered.rename({START: "@s", END: "@e", COVER_START: START, COVER_END: END})
    marked = pl.lit(False)
    if closed is not None and closed.height:
        marks = closed.with_columns(pl.lit(True).alias("@marked"))
        covers, marked = covers.join(marks, on=names, how="left", nulls_equal=True), pl.col("@marked")
    expired = pl.when(expires(step) <= before).then(pl.lit(LateReason.EXPIRED.value))
    reason = expired.when(marked).then(pl.lit(LateReason.CLOSED.value))
    judged = covers.with_columns(reason.alias("@reason")).rename(
        {START: COVER_START, END: COVER_END, "@s": START, "@e": END}
    )
    wanted = judged.select(*names, COVER_START, COVER_END, "@reason", "@live", "@joined")
    return SessionMerges(wanted.filter("@live").drop("@live"), wanted.filter(~pl.col("@live")).drop("@live", "@joined"))


def cover(spans: pl.DataFrame, keys: Sequence[str], touching: Touching) -> pl.DataFrame:
    """Add to each span the number and the bounds of its merged session."""
    ordered = spans.sort(*keys, START, END)
    begins = _begins_of_groups(ordered, keys, touching)
    first = np.flatnonzero(begins)
    many = np.diff(first, append=ordered.height)
    # The spans of a group are in a row: its first start is the least.
    ends = np.maximum.reduceat(ordered[END].to_numpy(), first) if len(first) else np.zeros(0, np.int64)
    return ordered.with_columns(
        pl.Series("@group", np.cumsum(begins)),
        pl.Series(COVER_START, np.repeat(ordered[START].to_numpy()[first], many)),
        pl.Series(COVER_END, np.repeat(ends, many)),
    )


def _begins_of_groups(ordered: pl.DataFrame, keys: Sequence[str], touching: Touching) -> npt.NDArray[np.bool_]:
    """Mark the first span of each merged session, by key and start."""
    begins = np.zeros(ordered.height, np.bool_)
    begins[:1] = True
    for name in keys:
        begins |= ordered[name].ne_missing(ordered[name].shift(1)).to_numpy()
    starts, ends = ordered[START].to_numpy(), ordered[END].to_numpy()
    if not len(ends):
        return begins
    least, stride = int(ends.min()), int(ends.max()) - int(ends.min()) + 1
    number = np.cumsum(begins) - 1
    if stride * (int(number[-1]) + 1) >= _LONGEST:
        by_key = pl.DataFrame([pl.Series("@key", number), ordered[END]])
        so_far = by_key.select(pl.col(END).cum_max().over("@key"))[END].to_numpy()
    else:
        # Shift the ends of each key past those of the previous key, so that one running maximum serves all keys.
        so_far = np.maximum.accumulate(number * stride + (ends - least)) - number * stride + least
    later = starts[1:] > so_far[:-1] if touching is Touching.MERGE else starts[1:] >= so_far[:-1]
    begins[1:] |= later
    return begins


def _with_joined(covered: pl.DataFrame) -> pl.DataFrame:
    """Mark the spans whose merged session has a new span."""
    groups = covered["@group"].to_numpy()
    has_new = np.zeros(groups[-1] + 1 if len(groups) else 0, np.bool_)
    has_new[groups[~covered["@live"].to_numpy()]] = True
    return covered.with_columns(pl.Series("@joined", has_new[groups]))


def merge_open_sessions(
    open_windows: OpenWindows, live: pl.DataFrame, keys: Sequence[str], step: WindowedStep, before: int
) -> OpenWindows:
    """Merge open sessions that an accepted element bridges or extends."""
    names = identity(keys)
    grows = pl.col("@joined") & pl.col("@reason").is_null()
    growing = live.filter(grows & ((pl.col(START) != pl.col(COVER_START)) | (pl.col(END) != pl.col(COVER_END))))
    if open_windows.windows is None or growing.is_empty():
        return open_windows
    # A session that already has the merged bounds still merges with the others.
    covers = growing.select(*keys, COVER_START, COVER_END).unique()
    joined = live.join(covers, on=covers.columns, how="semi", nulls_equal=True).select(*names, COVER_START, COVER_END)
    parts = open_windows.windows.filter(~pl.col(CLOSED)).join(joined, on=names, how="inner", nulls_equal=True)
    others = open_windows.windows.join(joined, on=names, how="anti", nulls_equal=True)
    marks = open_windows.windows.filter(CLOSED).join(joined, on=names, how="semi", nulls_equal=True)
    merged = _merged_rows(parts, keys, step, before)
    windows = pl.concat([others, marks, merged], how="diagonal_relaxed")
    items = {
        name: together([under_merged_bounds(open_windows.items[name], joined, keys)], keys, kind)
        for name, kind in items_of(step).items()
        if name in open_windows.items
    }
    return OpenWindows(windows, items, _pending_retractions(open_windows.pending, parts, joined, keys, step))


def _merged_rows(parts: pl.DataFrame, keys: Sequence[str], step: WindowedStep, before: int) -> pl.DataFrame:
    """Return one row per merged session, with the contents of its parts and no emitted pane."""
    hold = pl.col(HOLD).max() if step.pane_timestamp is PaneTimestamp.LATEST else pl.col(HOLD).min()
    ranks = ranked(parts.drop(START, END).rename({COVER_START: START, COVER_END: END}), picks_of(step))
    gathered = ranks.fetched(ranks.frame.group_by(identity(keys)).agg(
        pl.col(ADDED).sum(), hold, pl.col(ARRIVED).max(),
        *merged_parts(plain_parts(step), wide_sums(step, parts)), *ranks.made, *triggers.merging(step.trigger),
    ))  # fmt: skip
    gathered = without_empty_carries(gathered, sums_of(step))
    end = max_timestamp()
    if step.pane_timestamp is PaneTimestamp.END_OF_WINDOW:
        gathered = gathered.with_columns(pl.when(pl.col(HOLD).is_not_null()).then(end).alias(HOLD))
    known = {name: pl.col(name) for name in gathered.columns}
    state = triggers.merged(step.trigger, {**triggers.now(step.trigger), **known}, end <= before)
    fresh = {PANE_COUNT: pl.lit(0, pl.Int64), NON_EARLY_COUNT: pl.lit(0, pl.Int64), CLOSED: pl.lit(False)}
    trigger_state = {name: state[name] for name in triggers.columns(step.trigger)}
    return gathered.with_columns(**fresh, **trigger_state).select(pl.exclude(r"^.*\|(any|all)$"))


def under_merged_bounds(frame: pl.DataFrame, joined: pl.DataFrame, keys: Sequence[str], *also: str) -> pl.DataFrame:
    """Replace the bounds of rows by those of the merged session; add the requested columns of `joined`."""
    names = identity(keys)
    found = frame.join(joined.select(*names, COVER_START, COVER_END, *also), on=names, how="left", nulls_equal=True)
    return found.with_columns(
        pl.coalesce(COVER_START, START).alias(START), pl.coalesce(COVER_END, END).alias(END)
    ).drop(COVER_START, COVER_END)


def _pending_retractions(
    pending: pl.DataFrame | None, parts: pl.DataFrame, joined: pl.DataFrame, keys: Sequence[str], step: WindowedStep
) -> pl.DataFrame | None:
    """Return the last panes of merged sessions; the new session retracts them before its first pane."""
    if step.accumulation is not Accumulation.RETRACTING:
        return None
    emitted = parts.filter(pl.col(PANE_COUNT) > 0) if LAST_TIMING in parts.columns else parts.clear()
    found = []
    if pending is not None:
        owners = joined.rename({START: OWNER_START, END: OWNER_END})
        again = pending.join(owners, on=[*keys, OWNER_START, OWNER_END], how="left", nulls_equal=True)
        found.append(
            again.with_columns(
                pl.coalesce(COVER_START, OWNER_START).alias(OWNER_START),
                pl.coalesce(COVER_END, OWNER_END).alias(OWNER_END),
            ).drop(COVER_START, COVER_END)
        )
    if emitted.height:
        covers = emitted.select(COVER_START, COVER_END)
        last = last_panes(emitted, keys, step)
        found.append(last.with_columns(covers[COVER_START].alias(OWNER_START), covers[COVER_END].alias(OWNER_END)))
    return pl.concat(found, how="diagonal_relaxed").sort(identity(keys)) if found else None
