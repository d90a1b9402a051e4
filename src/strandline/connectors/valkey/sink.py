"""A server at work as a sink: the latest answers under their keys, and beside them streams and the ledger.

A batch takes effect with its entry, in one script. One that is so large that others would have to wait for it is put
aside first, in parts; the entry, once written, binds them to take effect one after the other, whoever comes next.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from strandline.connectors.valkey.chunks import KEY, NUMBER, VALUE, Part, no_pairs
from strandline.connectors.valkey.encode_rows import key_of, keys_for, values_of, versions_of
from strandline.connectors.valkey.lua_scripts import Acts, Seen
from strandline.connectors.valkey.server import Server
from strandline.errors import InvalidStep, SinkError
from strandline.formats.json.write_rows import as_json
from strandline.formats.refused_rows import Refused, refused_letters
from strandline.formats.sink_columns import names_beside, tell
from strandline.kernel.dead_letters import CUT, NAMES
from strandline.kernel.latest_per_key import standing
from strandline.kernel.output import Output
from strandline.letters.envelope_json import to_json
from strandline.model.elements import Duration
from strandline.plan.stages import Deliver
from strandline.ports.crash_points import crash_point
from strandline.ports.ledger import LedgerEntry, Recorded, Written, judge

LARGEST: Final = 64 * 1024 * 1024
"""A row that is longer is refused: one of 512 MB would end the connection, each time anew."""
ENOUGH: Final = 100
"""Where so many rows are refused and none is taken, it is the prefix that belongs to somebody else."""
_KEPT: Final = 64 * 1024
_FOREIGN: Final = "the key holds a value that is not of this sink"


@dataclass(frozen=True, slots=True)
class Place:
    """A server, what its keys begin with, which columns make a key, and how long a row stays."""

    server: Server
    prefix: str
    key: tuple[str, ...] = ()
    expires: Duration | None = None


@dataclass(slots=True)
class _Batch:
    """A batch on its way, the rows it was made of, and those that are not to be written."""

    part: Part
    panes: pl.DataFrame | None
    refused: list[Refused]

    def refuse(self, part: Part, places: list[int], batch: int) -> Part:
        """The part without rows that stand in the way of somebody else's values."""
        if self.panes is not None:
            rows = self.panes[part.rows[NUMBER].gather(places).to_list()]
            self.refused += [Refused(row, _FOREIGN) for row in tell(rows, batch).rows.to_dicts()]
        return part.without(places)


class OpenValkey:
    """A prefix at work, used from one thread at a time."""

    def __init__(self, place: Place, output: Deliver, name: str) -> None:
        self._place, self._name, self._keys = place, name, output.keys
        self._mask = () if output.dead is None else output.dead.mask
        if not place.key and output.keys is None:
            raise InvalidStep(
                f"{name} writes elements by key, and is not told by which", hint='name the columns: key=["id"]'
            )
        self._acts = Acts(place.server, place.prefix, output.number, name)
        self._elsewhere: Callable[[pl.DataFrame, LedgerEntry], None] | None = None

    def refused_to(self, keep: Callable[[pl.DataFrame, LedgerEntry], None]) -> None:
        self._elsewhere = keep

    def claim(self, lineage: str) -> int:
        return self._acts.claim(lineage)

    def latest(self, lineage: str) -> Recorded | None:
        return self._acts.look(lineage, 0).last

    def commit(self, output: Output, entry: LedgerEntry) -> Written:
        seen, known = self._judge(entry)
        if known is not None:
            self._acts.keep_known(entry)
            return known
        batch = self._batch(output, entry, seen.job)
        parts = batch.part.cut()
        whole, staged = (parts[0], 0) if len(parts) == 1 else (Part(), self._stage(batch, parts, entry))
        crash_point("C9")
        mine = batch.refused.copy()
        whole = replace(whole, dead=(*whole.dead, *self._letters(mine, output, entry)))
        while found := self._acts.commit(output, entry, seen, staged, whole):
            whole = batch.refuse(whole, found, entry.batch)
            self._refuse_all(batch)
            more = batch.refused[len(mine) :]
            whole = replace(whole, dead=(*whole.dead, *self._letters(more, output, entry)))
            mine = batch.refused.copy()
        self._acts.apply(entry.lineage, entry.epoch, range(staged))
        self._acts.keep()
        crash_point("C10")
        return Written(refused=len(batch.refused))

    def mark(self, output: Output, entry: LedgerEntry) -> Written:
        seen, known = self._judge(entry)
        if known is not None:
            self._acts.keep_known(entry)
            return known
        self._acts.commit(output, entry, seen, 0, Part())
        self._acts.keep()
        return Written()

    def write(self, output: Output, entry: LedgerEntry) -> Written:
        seen = self._acts.look(entry.lineage, entry.batch)
        judge(replace(entry, starts=None), seen.epoch, None, None, sink=self._name)
        batch = self._batch(output, entry, seen.job)
        for each in batch.part.cut():
            part = each
            while found := self._acts.write(entry, part):
                part = batch.refuse(part, found, entry.batch)
            crash_point("C9")
        self._refuse_all(batch)
        if batch.refused:
            self._acts.write(entry, Part(dead=self._letters(batch.refused, output, entry)))
        self._acts.keep()
        crash_point("C10")
        return Written(refused=len(batch.refused))

    def close(self) -> None:
        self._acts.close()

    def _judge(self, entry: LedgerEntry) -> tuple[Seen, Written | None]:
        seen = self._acts.look(entry.lineage, entry.batch)
        known = judge(entry, seen.epoch, seen.known, seen.last, sink=self._name)
        self._acts.settle(entry.lineage, entry.epoch, seen)
        return seen, known

    def _stage(self, batch: _Batch, parts: list[Part], entry: LedgerEntry) -> int:
        for number, each in enumerate(parts):
            part = each
            while found := self._acts.stage(entry, number, part):
                part = batch.refuse(part, found, entry.batch)
        self._refuse_all(batch)
        return len(parts)

    def _refuse_all(self, batch: _Batch) -> None:
        if len(batch.refused) >= ENOUGH and len(batch.refused) >= batch.part.rows.height:
            raise SinkError(
                f"{self._name}: all {len(batch.refused)} rows of a batch were refused",
                detail=batch.refused[-1].said,
                hint="choose another prefix; the next start tries the batch again",
            )

    def _batch(self, output: Output, entry: LedgerEntry, job: int) -> _Batch:
        refused: list[Refused] = []
        rows, gone = no_pairs(), no_pairs()
        if output.panes is not None and output.panes.height:
            rows, gone = self._pairs(output.panes, entry.batch, job, refused)
        late: tuple[str, ...] = ()
        if output.late is not None and output.late.height:
            told = as_json(output.late, entry.batch).cast(pl.String)
            long = told.str.len_bytes() > LARGEST
            refused += _too_long(output.late.filter(long), entry.batch)
            late = tuple(told.filter(~long))
        dead = () if output.dead is None else _to_lines(output.dead)
        expiry = "" if self._place.expires is None else str(self._place.expires.ms)
        return _Batch(Part(expiry, rows, gone, late, dead), output.panes, refused)

    def _pairs(
        self, panes: pl.DataFrame, batch: int, job: int, refused: list[Refused]
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The rows that stand at the end of the batch, and the keys of those that are gone."""
        key = key_of(panes, self._place.key, self._keys, self._name)
        own = {public: name for name, public in names_beside(panes.columns).items() if name in panes.columns}
        stands = standing(panes.with_row_index(f"@{NUMBER}"), [own.get(name, name) for name in key])
        found = []
        for frame in (stands.rows, stands.gone):
            numbers, mine = frame[f"@{NUMBER}"].cast(pl.Int64), frame.drop(f"@{NUMBER}")
            versions = versions_of(mine, job, batch)
            values = versions if frame is stands.gone else values_of(mine, versions, batch).cast(pl.String)
            pairs = {KEY: keys_for(mine, key, self._place.prefix), VALUE: values, NUMBER: numbers}
            found.append(pl.DataFrame(pairs))
        rows, gone = found
        long = rows[VALUE].str.len_bytes() > LARGEST
        if long.any():
            refused += _too_long(panes[rows.filter(long)[NUMBER].to_list()], batch)
        return rows.filter(~long), gone

    def _letters(self, refused: list[Refused], output: Output, entry: LedgerEntry) -> tuple[str, ...]:
        if not refused:
            return ()
        clock = output.progress.clock
        mine = refused_letters(refused, sink=self._name, lineage=entry.lineage, clock=clock, mask=self._mask)
        if self._elsewhere is None:
            return _to_lines(mine)
        self._elsewhere(mine, entry)
        return ()


def _too_long(rows: pl.DataFrame, batch: int) -> list[Refused]:
    said = f"the row is longer than {LARGEST} bytes"
    return [Refused(row, said) for row in tell(rows, batch).rows.to_dicts()]


def _to_lines(letters: pl.DataFrame) -> tuple[str, ...]:
    """Dead letters, a line each; of one that would be too long, the beginning."""
    lines = []
    for letter in letters.rename(NAMES, strict=False).iter_rows(named=True):
        line = to_json(letter)
        if len(line) > LARGEST:
            line = to_json({**letter, "raw": letter["raw"][:_KEPT], "masked": CUT})
        lines.append(line.decode())
    return tuple(lines)
