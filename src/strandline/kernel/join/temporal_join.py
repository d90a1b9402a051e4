"""Join rows with the version of their key that is valid at their event time: the temporal join operator.

Order of a batch: split off late rows and versions that no row can need any more; find the version of each row that the
watermark reaches; correct emitted rows that a new version changes; store rows that wait, and new versions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import polars as pl

from strandline.kernel.blocks.block import AT, INPUT, OFFSET, PARTITION, REASON, SIGN, element_columns
from strandline.kernel.blocks.column_types import to_polars
from strandline.kernel.blocks.hashing import hashed
from strandline.kernel.blocks.small_frames import only, stacked, without
from strandline.kernel.expressions import to_expr
from strandline.kernel.join.as_of_search import Flags, Found, Versions, as_of, new_versions, sorted_by_hash
from strandline.kernel.join.pairs import Longs
from strandline.kernel.join.side_store import HASH, plus
from strandline.kernel.join.time_slices import TimeSlices
from strandline.kernel.join.version_store import CURRENT, DELETED, WHOLE, VersionStore
from strandline.kernel.join.version_store import NAME as VERSIONS
from strandline.kernel.operator import PARTIAL, ROWS, WATERMARK, Batch, BatchResult, Exported, Fit, Prepared
from strandline.kernel.single_elements import by_key_group, with_valid_time
from strandline.kernel.state.slice_store import INDEX, Index, write_index
from strandline.kernel.watermarks import FOREVER, NEVER, Rule
from strandline.model.joins import RIGHT, How
from strandline.model.operators import OperatorInput
from strandline.model.panes import LateReason
from strandline.model.temporal_join import Direction, TemporalJoin

PROBES: Final = "probes"
_POSITION: Final = (INPUT, PARTITION, OFFSET)
_OWN: Final = (*_POSITION, HASH, DELETED, SIGN)
"""Internal columns, which output rows do not have."""


@dataclass(slots=True, eq=False)
class _Result:
    """What a batch emits, its late rows, and how many of its rows are accepted and dropped."""

    parts: list[pl.DataFrame] = field(default_factory=list)
    late: list[pl.DataFrame] = field(default_factory=list)
    contributed: int = 0
    filtered: int = 0


@dataclass(frozen=True, slots=True)
class TemporalJoinOperator:
    """The temporal join for given key columns and inputs."""

    definition: TemporalJoin
    keys: tuple[str, ...]
    inputs: tuple[OperatorInput, ...]

    @property
    def takes_signs(self) -> bool:
        return self.definition.signs or self.definition.ignores_retractions

    @property
    def _knows_deletions(self) -> bool:
        return self.definition.signs or self.definition.deleted is not None

    def admit(self, elements: pl.DataFrame, rule: Rule | None, clock: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        return with_valid_time(elements, rule, clock)

    def probe(self, elements: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        return elements, None

    def prepare(self, elements: pl.DataFrame, groups: int, horizon: int | None) -> Prepared:  # noqa: ARG002 - a part of the protocol
        """Mark deletions, rename columns as in the result, and split elements by key group."""
        if elements.is_empty():
            return Prepared({}, 0)
        source = self.inputs[int(elements[INPUT][0])]
        if source.role != RIGHT:
            return by_key_group(elements, self.keys, groups)
        given = elements
        if self.definition.ignores_retractions and SIGN in given.columns:
            given = given.filter(pl.col(SIGN) > 0)
        dropped = elements.height - given.height
        if given.is_empty():
            return Prepared({}, dropped)
        marked = self._with_deletions(given)
        names = dict(self.definition.renamed) | dict(zip(source.keys, self.keys, strict=True))
        named = marked.rename({old: new for old, new in names.items() if old != new and old in marked.columns})
        return replace(by_key_group(named, self.keys, groups), filtered=dropped)

    def _with_deletions(self, versions: pl.DataFrame) -> pl.DataFrame:
        """Mark deletions: retractions, and rows for which the condition is true."""
        if not self._knows_deletions:
            return versions
        deleted = pl.lit(False)
        if SIGN in versions.columns:
            deleted = (pl.col(SIGN) < 0).fill_null(False)
        condition = self.definition.deleted
        if condition is not None:
            known = {*versions.columns}
            test = to_expr(condition.tree, lambda name: pl.col(name.name) if name.name in known else pl.lit(None))
            deleted = deleted | test.cast(pl.Boolean).fill_null(False)
        return versions.with_columns(deleted.alias(DELETED))

    def play(self, batch: Batch) -> BatchResult:
        result, now = _Result(), batch.now
        versions = VersionStore.read(self.definition, self.keys, batch.held, batch.index.stores)
        waiting = TimeSlices.read(PROBES, (), batch.held, batch.index.stores)
        left, right = self._arrivals(batch)
        new = self._new_versions(right, versions, now.before, result)
        probes = self._new_probes(left, now.before, result)
        if self.definition.retracts and new is not None:
            self._correct(waiting, versions, new, now.before, result)
        self._answer(self._due(waiting, probes, now.before, now.after), versions, new, result)
        if now.after == FOREVER:
            waiting.delete([*waiting.slices])
            versions.clear()
        else:
            self._keep_probes(waiting, probes, now.after)
            versions.add(new, now.after)
        writes, stores = versions.result()
        stores |= {waiting.store.name: waiting.slices} if waiting.slices else {}
        late = pl.concat(result.late, how="diagonal_relaxed") if result.late else None
        refused = 0 if late is None else late.height
        rows = self._result_frame(result.parts)
        return BatchResult(
            {**waiting.writes, **writes}, stores, rows, late, result.contributed, refused, result.filtered
        )

    def _arrivals(self, batch: Batch) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
        """Return the left and the right rows of a batch."""
        found: dict[bool, list[pl.DataFrame]] = {}
        for block in batch.blocks:
            if ROWS in block.frames:
                frame = block.frames[ROWS]
                found.setdefault(self.inputs[int(frame[INPUT][0])].role == RIGHT, []).append(frame)
        left, right = (stacked(found[side]) if side in found else None for side in (False, True))
        return left, right

    def _new_versions(
        self, rows: pl.DataFrame | None, versions: VersionStore, watermark: int, result: _Result
    ) -> pl.DataFrame | None:
        """Return the versions to add, sorted by key hash and time; of one key and time the last in source order."""
        rows = None if rows is None else self._without_null_keys(rows, result, pads=False)
        if rows is None or rows.is_empty():
            return None
        found = _sorted_versions(_with_hash(rows, self.keys))
        ended = versions.is_ended(found, watermark)
        if ended.any():
            late = without(found.filter(pl.Series(ended)), (HASH, DELETED))
            result.late.append(_late(late, LateReason.EXPIRED, watermark))
            found = found.filter(pl.Series(~ended))
        result.contributed += found.height
        if found.is_empty():
            return None
        return without(self._last_of_each_time(found), (*_POSITION, SIGN))

    def _last_of_each_time(self, rows: pl.DataFrame) -> pl.DataFrame:
        if not _has_repeats(rows[HASH].to_numpy(), rows[AT].to_numpy()):
            return rows
        return rows.unique([*self.keys, AT], keep="last", maintain_order=True)

    def _new_probes(self, rows: pl.DataFrame | None, watermark: int, result: _Result) -> pl.DataFrame | None:
        """Return the timely left rows with HASH."""
        if rows is None:
            return None
        behind = rows[AT].to_numpy() <= watermark
        if watermark != NEVER and behind.any():
            late = rows.filter(pl.Series(behind)).sort(element_columns(rows))
            result.late.append(_late(late, LateReason.BEHIND, watermark))
            rows = rows.filter(pl.Series(~behind))
        rows = self._without_null_keys(rows, result, pads=self.definition.how is How.LEFT)
        result.contributed += rows.height
        return without(_with_hash(rows, self.keys), (*_POSITION, SIGN)) if rows.height else None

    def _without_null_keys(self, rows: pl.DataFrame, result: _Result, *, pads: bool) -> pl.DataFrame:
        """Remove rows with a null key, which match nothing; emit them if the join emits rows without a version."""
        if not any(rows[name].null_count() for name in self.keys):
            return rows
        null = rows.select(pl.any_horizontal(pl.col(name).is_null() for name in self.keys).alias("null"))["null"]
        alone = rows.filter(null)
        if pads:
            result.contributed += alone.height
            result.parts.append(self._signed(without(alone.sort(element_columns(alone)), _OWN), 1))
        else:
            result.filtered += alone.height
        return rows.filter(~null)

    def _due(self, waiting: TimeSlices, probes: pl.DataFrame | None, before: int, after: int) -> pl.DataFrame | None:
        """Return the left rows that the watermark reaches in this batch, sorted by HASH."""
        delay = self.definition.delay.ms
        found = []
        for number in waiting.between(max(before - delay, NEVER), after):
            times = waiting.open(number).times()
            reached = plus(times, delay)
            due = (reached <= after) & (reached > before)
            if due.any():
                found.append(waiting.open(number).rows(due))
        if probes is not None:
            due = plus(probes[AT].to_numpy(), delay) <= after
            found += [probes if due.all() else probes.filter(pl.Series(due))]
        rows = [each for each in found if each.height]
        return sorted_by_hash(stacked(rows)) if rows else None

    def _answer(
        self, due: pl.DataFrame | None, versions: VersionStore, new: pl.DataFrame | None, result: _Result
    ) -> None:
        """Emit rows with their version."""
        if due is None:
            return
        parts = [*versions.parts(due), *([] if new is None else [new_versions(new)])]
        self._emit(due, parts, self._as_of(parts, due), result, 1)

    def _as_of(self, parts: Sequence[Versions], rows: pl.DataFrame) -> Found:
        tolerance = self.definition.tolerance
        return as_of(parts, rows, self.keys, self.definition.direction, None if tolerance is None else tolerance.ms)

    def _emit(self, rows: pl.DataFrame, parts: Sequence[Versions], found: Found, result: _Result, sign: int) -> None:
        """Add rows with their version to the result, and rows without one if the join emits them."""
        alone = ~found.is_found
        for number, part in enumerate(parts):
            mine = np.flatnonzero(found.part == number)
            if not len(mine):
                continue
            right = part.at(found.place[mine])
            if DELETED in right.columns:
                is_deleted = right[DELETED].fill_null(False).to_numpy()
                if is_deleted.any():
                    alone[mine[is_deleted]] = True
                    mine, right = mine[~is_deleted], right.filter(pl.Series(~is_deleted))
            if len(mine):
                left = without(rows if len(mine) == rows.height else rows[mine], _OWN)
                pairs = pl.DataFrame([*left, *without(right, (*_OWN, AT, *self.keys))])
                result.parts.append(self._signed(pairs, sign))
        if self.definition.how is How.LEFT and alone.any():
            result.parts.append(self._signed(without(rows.filter(pl.Series(alone)), _OWN), sign))

    def _signed(self, rows: pl.DataFrame, sign: int) -> pl.DataFrame:
        return rows.with_columns(pl.lit(sign, pl.Int64).alias(SIGN)) if self.definition.retracts else rows

    def _correct(
        self, waiting: TimeSlices, versions: VersionStore, new: pl.DataFrame, before: int, result: _Result
    ) -> None:
        """Retract emitted rows that have a new version now, and emit them again."""
        rows = self._emitted_near(waiting, new, before)
        if rows is None:
            return
        stored = versions.parts(rows)
        parts = [*stored, new_versions(new)]
        now = self._as_of(parts, rows)
        changed = now.part == len(stored)
        if not changed.any():
            return
        touched = rows.filter(pl.Series(changed))
        self._emit(touched, stored, self._as_of(stored, touched), result, -1)
        self._emit(touched, parts, Found(now.part[changed], now.place[changed]), result, 1)

    def _emitted_near(self, waiting: TimeSlices, new: pl.DataFrame, before: int) -> pl.DataFrame | None:
        """Return emitted rows with the key hash of a new version and a time at which it may be valid, by HASH."""
        asked, times = self.definition, new[AT].to_numpy()
        if before == NEVER:
            return None
        delay, tolerance = asked.delay.ms, None if asked.tolerance is None else asked.tolerance.ms
        last_emitted = before - delay
        oldest = last_emitted - asked.corrections.ms
        first, last = int(times.min()), last_emitted
        if asked.direction is not Direction.BACKWARD:
            first -= tolerance or 0
        if tolerance is not None:
            last = min(last, int(times.max()) + (0 if asked.direction is Direction.FORWARD else tolerance))
        hashes = np.unique(new[HASH].to_numpy())
        found = []
        for number in waiting.between(max(first, oldest, NEVER), max(last, NEVER)):
            opened = waiting.open(number)
            at = opened.times()
            near = (at >= max(first, NEVER)) & (at > oldest) & (at <= last)
            if near.any():
                own = np.concatenate([run.names[HASH].to_numpy() for run in opened.runs])
                near &= _is_among(own, hashes)
            if near.any():
                found.append(opened.rows(near))
        rows = [each for each in found if each.height]
        return sorted_by_hash(stacked(rows)) if rows else None

    def _keep_probes(self, waiting: TimeSlices, probes: pl.DataFrame | None, after: int) -> None:
        """Store left rows that wait or may be corrected; delete slices with neither."""
        delay, corrections = self.definition.delay.ms, self.definition.corrections.ms
        kept = delay + corrections
        waiting.delete([n for n in [*waiting.slices] if waiting.bounds(n)[1] + kept <= after])
        if probes is not None:
            left = plus(probes[AT].to_numpy(), kept) > after
            probes = probes if left.all() else probes.filter(pl.Series(left))
        waiting.add(probes)
        self._set_deadlines(waiting, probes, after)

    def _set_deadlines(self, waiting: TimeSlices, probes: pl.DataFrame | None, after: int) -> None:
        """Set when slices are read next: at the first row that still waits, or when they are deleted."""
        delay = self.definition.delay.ms
        added = set() if probes is None else {*waiting.numbers(probes).tolist()}
        for number, entry in [*waiting.slices.items()]:
            last = waiting.bounds(number)[1] + delay + self.definition.corrections.ms
            first = None
            if number in waiting.known:
                times = waiting.open(number).times()
                open_ = times[plus(times, delay) > after]
                first = int(open_.min()) if len(open_) else None
            elif entry.hold is not None and entry.hold + delay > after:
                first = entry.hold
            if probes is not None and number in added:
                times = probes[AT].to_numpy()
                mine = times[(waiting.numbers(probes) == number) & (plus(times, delay) > after)]
                if len(mine):
                    first = int(mine.min()) if first is None else min(first, int(mine.min()))
            waiting.set_deadline(number, last if first is None else min(first + delay, last), first)

    def _result_frame(self, parts: Sequence[pl.DataFrame]) -> pl.DataFrame | None:
        """Concatenate the output rows of a batch, with the columns of the result in order."""
        found = [part for part in parts if part.height]
        if not found:
            return None
        rows = stacked(found)
        wanted = [(name, kind) for _, name, kind in self.definition.columns if name not in rows.columns]
        complete = rows.with_columns(
            pl.lit(None, pl.String if kind is None else to_polars(kind)).alias(name) for name, kind in wanted
        )
        known = [name for _, name, _ in self.definition.columns]
        last = [AT, *([SIGN] if SIGN in complete.columns else [])]
        others = [name for name in complete.columns if name not in {*self.keys, *known, *last}]
        return only(complete, [*self.keys, *known, *others, *last])

    def blocks_of(self, exported: Exported) -> dict[str, bytes]:
        versions = VersionStore.read(self.definition, self.keys, {}, {})
        waiting = TimeSlices.read(PROBES, (), {}, {})
        after = exported.progress.watermark
        rows = [self._rehashed(frame) for name, frame in exported.frames.items() if _is_version(name)]
        if found := [each for each in rows if each.height]:
            versions.add(pl.concat(found, how="diagonal_relaxed").sort(HASH, AT, maintain_order=True), after)
        probes = [self._rehashed(frame) for name, frame in exported.frames.items() if name.startswith(f"{PROBES}_")]
        if found := [each for each in probes if each.height]:
            self._keep_probes(waiting, pl.concat(found, how="diagonal_relaxed"), after)
        writes, stores = versions.result()
        stores |= {waiting.store.name: waiting.slices} if waiting.slices else {}
        blocks = {place: data for place, data in {**waiting.writes, **writes}.items() if data is not None}
        return {**blocks, INDEX: write_index(Index(exported.progress, exported.batch_number, stores), blocks)}

    def _rehashed(self, rows: pl.DataFrame) -> pl.DataFrame:
        return _with_hash(rows, self.keys) if rows.height else rows

    def fitted(self, exported: Exported, fit: Fit) -> Exported:  # noqa: ARG002 - a part of the protocol
        return exported

    def missing(self, exported: Exported) -> list[str]:
        return [
            f"{frame} has no column {name}"
            for frame, rows in exported.frames.items()
            for name in (*self.keys, AT)
            if name not in rows.columns
        ]


def _is_version(frame: str) -> bool:
    return frame in {CURRENT.rows, WHOLE.rows} or frame.startswith(f"{VERSIONS}_")


def _with_hash(rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    return rows.with_columns(pl.Series(HASH, hashed(only(rows, keys)).view(np.int64)))


def _sorted_versions(rows: pl.DataFrame) -> pl.DataFrame:
    """Sort by key hash and time, and rows that agree in both by their position."""
    hashes, times = rows[HASH].to_numpy(), rows[AT].to_numpy()
    order = np.lexsort((times, hashes))
    if _has_repeats(hashes[order], times[order]):
        return rows.sort(HASH, AT, *element_columns(rows), maintain_order=True)
    return rows[order]


def _has_repeats(hashes: Longs, times: Longs) -> bool:
    """Tell whether neighbors have the same hash and time."""
    return bool(((hashes[1:] == hashes[:-1]) & (times[1:] == times[:-1])).any())


def _is_among(hashes: Longs, wanted: Longs) -> Flags:
    """Tell which hashes are among these sorted ones."""
    found = np.minimum(np.searchsorted(wanted, hashes), len(wanted) - 1)
    same: Flags = wanted[found] == hashes
    return same


def _late(rows: pl.DataFrame, reason: LateReason, watermark: int) -> pl.DataFrame:
    return rows.with_columns(
        pl.lit(reason.value).alias(REASON),
        pl.lit(watermark, pl.Int64).alias(WATERMARK),
        pl.lit(False).alias(PARTIAL),
    )
