"""Write the latest answers under their keys on a Valkey server, with streams and the ledger beside them.

A batch and its ledger entry take effect in one script call. A batch so large that it would delay other clients is
staged first, in parts. The ledger entry then commits the parts to be applied one after the other, by this driver or the
next.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from strandline.connectors.valkey.chunks import KEY, NUMBER, VALUE, Part, empty_pairs
from strandline.connectors.valkey.encode_rows import key_of, keys_for, values_of, versions_of
from strandline.connectors.valkey.lua_scripts import LedgerState, ScriptCalls
from strandline.connectors.valkey.server import Server
from strandline.errors import InvalidStep
from strandline.formats.json.write_rows import as_json
from strandline.formats.refused_rows import Refused, refused_letters
from strandline.formats.sink_columns import names_beside, to_sink_rows
from strandline.kernel.blocks.python_values import python_rows
from strandline.kernel.dead_letters import CUT, NAMES
from strandline.kernel.latest_per_key import latest_rows
from strandline.kernel.output import Output
from strandline.letters.envelope_json import to_json
from strandline.model.elements import Duration
from strandline.plan.stages import Deliver
from strandline.ports.crash_points import crash_point
from strandline.ports.ledger import LedgerEntry, Recorded, Written, judge

LARGEST: Final = 64 * 1024 * 1024
"""Longer rows are refused: one of 512 MB would end the connection, at every attempt."""
_KEPT_BYTES: Final = 64 * 1024
_FOREIGN: Final = "the key holds a value that is not of this sink"


@dataclass(frozen=True, slots=True)
class Place:
    """A server, the key prefix, the key columns, and the expiry of rows."""

    server: Server
    prefix: str
    key: tuple[str, ...] = ()
    expires: Duration | None = None


@dataclass(slots=True)
class _Batch:
    """A batch to write, its source rows, and its refused rows."""

    part: Part
    panes: pl.DataFrame | None
    refused: list[Refused]

    def refuse(self, part: Part, places: list[int], batch: int) -> Part:
        """Remove rows whose keys hold foreign values, and record them as refused."""
        if self.panes is not None:
            rows = self.panes[part.rows[NUMBER].gather(places).to_list()]
            self.refused += [Refused(row, _FOREIGN) for row in python_rows(to_sink_rows(rows, batch).rows)]
        return part.without(places)


class OpenValkey:
    """An open key prefix, used from one thread at a time."""

    def __init__(self, place: Place, output: Deliver, name: str) -> None:
        self._place, self._name, self._keys = place, name, output.keys
        self._mask = () if output.dead is None else output.dead.mask
        if not place.key and output.keys is None:
            raise InvalidStep(
                f"{name} writes elements by key, and no key is given", hint='name the columns: key=["id"]'
            )
        self._calls = ScriptCalls(place.server, place.prefix, output.number, name)
        self._letter_sink: Callable[[pl.DataFrame, LedgerEntry], None] | None = None

    def refused_to(self, wait_on_disk: Callable[[pl.DataFrame, LedgerEntry], None]) -> None:
        self._letter_sink = wait_on_disk

    def claim(self, lineage: str) -> int:
        return self._calls.claim(lineage)

    def latest(self, lineage: str) -> Recorded | None:
        return self._calls.read_ledger(lineage, 0).last

    def commit(self, output: Output, entry: LedgerEntry) -> Written:
        seen, known = self._judge(entry)
        if known is not None:
            self._calls.wait_known_on_disk(entry)
            return known
        batch = self._batch(output, entry, seen.job)
        parts = batch.part.cut()
        whole, staged = (parts[0], 0) if len(parts) == 1 else (Part(), self._stage(batch, parts, entry))
        crash_point("C9")
        recorded = batch.refused.copy()
        whole = replace(whole, dead=(*whole.dead, *self._letters(recorded, output, entry)))
        while found := self._calls.commit(output, entry, seen, staged, whole):
            whole = batch.refuse(whole, found, entry.batch)
            more = batch.refused[len(recorded) :]
            whole = replace(whole, dead=(*whole.dead, *self._letters(more, output, entry)))
            recorded = batch.refused.copy()
        self._calls.apply(entry.lineage, entry.epoch, range(staged))
        self._calls.wait_on_disk()
        crash_point("C10")
        return Written(refused=len(batch.refused))

    def mark(self, output: Output, entry: LedgerEntry) -> Written:
        seen, known = self._judge(entry)
        if known is not None:
            self._calls.wait_known_on_disk(entry)
            return known
        self._calls.commit(output, entry, seen, 0, Part())
        self._calls.wait_on_disk()
        return Written()

    def write(self, output: Output, entry: LedgerEntry) -> Written:
        seen = self._calls.read_ledger(entry.lineage, entry.batch)
        judge(replace(entry, starts=None), seen.epoch, None, None, sink=self._name)
        batch = self._batch(output, entry, seen.job)
        for each in batch.part.cut():
            part = each
            while found := self._calls.write(entry, part):
                part = batch.refuse(part, found, entry.batch)
            crash_point("C9")
        if batch.refused:
            self._calls.write(entry, Part(dead=self._letters(batch.refused, output, entry)))
        self._calls.wait_on_disk()
        crash_point("C10")
        return Written(refused=len(batch.refused))

    def close(self) -> None:
        self._calls.close()

    def _judge(self, entry: LedgerEntry) -> tuple[LedgerState, Written | None]:
        seen = self._calls.read_ledger(entry.lineage, entry.batch)
        known = judge(entry, seen.epoch, seen.known, seen.last, sink=self._name)
        self._calls.settle(entry.lineage, entry.epoch, seen)
        return seen, known

    def _stage(self, batch: _Batch, parts: list[Part], entry: LedgerEntry) -> int:
        for number, each in enumerate(parts):
            part = each
            while found := self._calls.stage(entry, number, part):
                part = batch.refuse(part, found, entry.batch)
        return len(parts)

    def _batch(self, output: Output, entry: LedgerEntry, job: int) -> _Batch:
        refused: list[Refused] = []
        rows, gone = empty_pairs(), empty_pairs()
        if output.panes is not None and output.panes.height:
            rows, gone = self._pairs(output.panes, entry.batch, job, refused)
        late: tuple[str, ...] = ()
        if output.late is not None and output.late.height:
            lines = as_json(output.late, entry.batch).cast(pl.String)
            long = lines.str.len_bytes() > LARGEST
            refused += _refuse_too_long(output.late.filter(long), entry.batch)
            late = tuple(lines.filter(~long))
        dead = () if output.dead is None else _to_lines(output.dead)
        expiry = "" if self._place.expires is None else str(self._place.expires.ms)
        return _Batch(Part(expiry, rows, gone, late, dead), output.panes, refused)

    def _pairs(
        self, panes: pl.DataFrame, batch: int, job: int, refused: list[Refused]
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The latest rows at the end of the batch, and the keys of retracted rows."""
        key = key_of(panes, self._place.key, self._keys, self._name)
        internal = {public: name for name, public in names_beside(panes.columns).items() if name in panes.columns}
        latest = latest_rows(panes.with_row_index(f"@{NUMBER}"), [internal.get(name, name) for name in key])
        found = []
        for frame in (latest.rows, latest.gone):
            numbers, data = frame[f"@{NUMBER}"].cast(pl.Int64), frame.drop(f"@{NUMBER}")
            versions = versions_of(data, job, batch)
            values = versions if frame is latest.gone else values_of(data, versions, batch).cast(pl.String)
            pairs = {KEY: keys_for(data, key, self._place.prefix), VALUE: values, NUMBER: numbers}
            found.append(pl.DataFrame(pairs))
        rows, gone = found
        long = rows[VALUE].str.len_bytes() > LARGEST
        if long.any():
            refused += _refuse_too_long(panes[rows.filter(long)[NUMBER].to_list()], batch)
        return rows.filter(~long), gone

    def _letters(self, refused: list[Refused], output: Output, entry: LedgerEntry) -> tuple[str, ...]:
        if not refused:
            return ()
        clock = output.progress.clock
        letters = refused_letters(refused, sink=self._name, lineage=entry.lineage, clock=clock, mask=self._mask)
        if self._letter_sink is None:
            return _to_lines(letters)
        self._letter_sink(letters, entry)
        return ()


def _refuse_too_long(rows: pl.DataFrame, batch: int) -> list[Refused]:
    reason = f"the row is longer than {LARGEST} bytes"
    return [Refused(row, reason) for row in python_rows(to_sink_rows(rows, batch).rows)]


def _to_lines(letters: pl.DataFrame) -> tuple[str, ...]:
    """Encode dead letters, one line each; cut a letter that would be too long."""
    lines = []
    for letter in letters.rename(NAMES, strict=False).iter_rows(named=True):
        line = to_json(letter)
        if len(line) > LARGEST:
            line = to_json({**letter, "raw": letter["raw"][:_KEPT_BYTES], "masked": CUT})
        lines.append(line.decode())
    return tuple(lines)
