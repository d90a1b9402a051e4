"""Mask dead letters before they leave a task, and send them to a dead-letter queue if the output has one."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final

import polars as pl
import polars.selectors as cs

from strandline.kernel.blocks.block import OFFSET, OWN, PARTITION
from strandline.kernel.blocks.python_values import UNCONVERTIBLE, python_rows, row_as_json
from strandline.kernel.dead_letters import (
    DETAIL,
    FIELDS,
    ID,
    MASKED,
    RAW,
    REASON,
    SHA256,
    WHOLE,
    letters_of,
    with_source,
)
from strandline.kernel.output import Output
from strandline.kernel.stateless_steps import EXCEPTION, FAILED, LOOKUP_FAILED
from strandline.plan.stages import Deliver
from strandline.ports.codecs import Decoder, Masked, MaskingDecoder
from strandline.ports.dead_letters import DeadLetterQueue, OpenDeadLetterQueue
from strandline.ports.ledger import LedgerEntry, Recorded, Written
from strandline.ports.sinks import OpenSink, RejectingSink, Stamp, TaskWrittenSink, Writer

HIDDEN: Final = "***"
WITHHELD: Final = "withheld"
_OF_OTHERS: Final = (FAILED, LOOKUP_FAILED)
"""Reasons whose details are texts of a user's function or of a lookup table."""


def failures(failed: pl.DataFrame, step: str | None = None) -> pl.DataFrame:
    """Return the rows for which a user function raised, as dead letters."""
    return letters_of(with_raw(failed), step=step)


def with_raw(rows: pl.DataFrame) -> pl.DataFrame:
    """Add the record's bytes; where they are unknown, its columns as JSON."""
    if RAW in rows.columns:
        return rows
    users = rows.select(pl.exclude(f"^{OWN}.*$"))
    if not users.width:
        return rows.with_columns(pl.lit(b"{}").alias(RAW))
    try:
        # Polars panics where it would write bytes as JSON.
        texts = users.with_columns(cs.binary().bin.encode("hex"))
        as_json = texts.select(pl.struct(pl.all()).struct.json_encode().cast(pl.Binary)).to_series()
    except UNCONVERTIBLE:
        as_json = pl.Series([row_as_json(row) for row in python_rows(users)], dtype=pl.Binary)
    return rows.with_columns(as_json.alias(RAW))


def outgoing(letters: pl.DataFrame, source: str | None, decoder: Decoder | None, mask: Iterable[str]) -> pl.DataFrame:
    """Return dead letters as they leave a task: addressed, with the fields of `mask` masked."""
    known = with_source(letters, source, framed=getattr(decoder, "registry", None) is not None)
    fields = frozenset(name.casefold() for name in mask)
    if not fields or known.is_empty():
        return known
    rows = known.select(RAW, REASON, DETAIL, EXCEPTION).rows()
    masked = [_masked_row(row, found) for row, found in zip(rows, _masked(known, decoder, fields), strict=True)]
    shape = {RAW: pl.Binary, DETAIL: pl.String, MASKED: pl.String}
    kept = known.with_columns(pl.DataFrame(masked, schema=shape, orient="row").iter_columns())
    # If the rest of the record is visible, a hash gives away a short secret to a brute-force search.
    return kept.with_columns(pl.when(pl.col(MASKED).ne_missing(FIELDS)).then(pl.col(SHA256)).alias(SHA256))


def _masked(letters: pl.DataFrame, decoder: Decoder | None, fields: frozenset[str]) -> list[Masked | None]:
    """Mask each record; None for one that cannot be parsed, or is absent."""
    if decoder is not None and not isinstance(decoder, MaskingDecoder):
        return _by_columns(letters, decoder, fields)
    hide = mask_json if decoder is None else decoder.mask
    return [None if value is None else hide(value, fields) for value in letters[RAW]]


def _masked_row(row: tuple[Any, ...], found: Masked | None) -> tuple[bytes | None, str | None, str | None]:
    """Return a dead letter's masked bytes, its masked detail, and how much was masked."""
    raw, reason, detail, exception = row
    # The error text of a user's function or a lookup table may hold a secret in any form.
    text = f"{exception or 'an error'}: {WITHHELD}" if reason in _OF_OTHERS else detail
    if raw is None:
        return None, text, None
    if found is None:
        return None, text if reason in _OF_OTHERS else WITHHELD, WHOLE
    for secret in sorted(found.hidden, key=len, reverse=True):
        text = None if text is None else text.replace(secret, HIDDEN)
    return found.value, text, FIELDS


def _by_columns(letters: pl.DataFrame, decoder: Decoder, fields: frozenset[str]) -> list[Masked | None]:
    """Mask records whose bytes cannot be changed in place: return their columns as masked JSON."""
    places = pl.int_range(pl.len(), dtype=pl.Int64).alias(OFFSET)
    raw = letters.select(PARTITION, places, RAW).filter(pl.col(RAW).is_not_null())
    found: dict[int, list[bytes]] = {}
    rows = decoder.decode(raw).rows
    for place, value in with_raw(rows.drop(RAW)).select(OFFSET, RAW).iter_rows():
        found.setdefault(place, []).append(value)
    return [mask_json(b"\n".join(found[each]), fields) if each in found else None for each in range(letters.height)]


def mask_json(value: bytes, fields: frozenset[str]) -> Masked | None:
    """Mask these fields at any depth, in JSON objects, one a line; None if the value is not JSON objects."""
    hidden: list[str] = []
    try:
        lines = [value] if value.count(b"\n") == 0 or _is_one(value) else value.splitlines()
        objects = [json.loads(line) for line in lines]
        if not all(isinstance(each, dict) for each in objects):
            return None
        shown = [json.dumps(_masked_json(each, fields, hidden), ensure_ascii=False) for each in objects]
    except (ValueError, RecursionError):
        return None
    return Masked("\n".join(shown).encode(errors="replace"), tuple(hidden))


def _is_one(value: bytes) -> bool:
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return False
    return True


def _masked_json(value: Any, fields: frozenset[str], hidden: list[str]) -> Any:
    if isinstance(value, dict):
        return {
            name: _masked_value(each, hidden) if name.casefold() in fields else _masked_json(each, fields, hidden)
            for name, each in value.items()
        }
    return [_masked_json(each, fields, hidden) for each in value] if isinstance(value, list) else value


def _masked_value(value: Any, hidden: list[str]) -> str | None:
    """Return a mask for a value, and add the value and all nested values to `hidden`."""
    if value is None:
        return None
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _masked_value(each, hidden)
    text = value if isinstance(value, str) else json.dumps(value)
    hidden += [each for each in {text, repr(text)[1:-1], json.dumps(text)[1:-1]} if each]
    return HIDDEN


def with_letters(sink: OpenSink, output: Deliver, lineage: str) -> OpenSink:
    """Return the sink, with its dead letters sent to the output's dead-letter queue if it names one."""
    if not isinstance(output.dead, DeadLetterQueue):
        return sink
    # Several outputs of a job may share one queue.
    own_lineage = f"{lineage}-{output.number}" if output.number else lineage
    return SeparateDeadLetters(sink, output.dead.open_letters(own_lineage))


@dataclass(frozen=True, slots=True)
class SeparateDeadLetters:
    """A sink whose dead letters go to a queue. They are stored before the batch counts as written."""

    sink: OpenSink
    letters: OpenDeadLetterQueue

    def __post_init__(self) -> None:
        if isinstance(self.sink, RejectingSink):
            self.sink.refused_to(self._put_refused)

    def claim(self, lineage: str) -> int:
        return self.sink.claim(lineage)

    def latest(self, lineage: str) -> Recorded | None:
        return self.sink.latest(lineage)

    def commit(self, output: Output, entry: LedgerEntry) -> Written:
        # A repeated batch has stored its dead letters already. If its range differs, the sink raises.
        last = self.sink.latest(entry.lineage)
        if last is None or last.batch < entry.batch:
            self._put(output, entry)
        return self.sink.commit(replace(output, dead=None), entry)

    def mark(self, output: Output, entry: LedgerEntry) -> Written:
        return self.sink.mark(output, entry)

    def write(self, output: Output, entry: LedgerEntry) -> Written:
        self._put(output, entry)
        done = self.sink.write(replace(output, dead=None), entry)
        if done.letters is not None:
            self._put_refused(done.letters, entry)
        return done

    def _put(self, output: Output, entry: LedgerEntry) -> None:
        if output.dead is not None and output.dead.height:
            self.letters.put(output.dead, entry)

    def _put_refused(self, letters: pl.DataFrame, entry: LedgerEntry) -> None:
        """Store dead letters of rejected rows, under a digest of their own: there may be several lots in a batch."""
        which = sha256(",".join(letters[ID]).encode()).hexdigest()[:16]
        self.letters.put(letters, replace(entry, digest=f"{entry.digest}, refused {which}"))

    def writer(self) -> Writer | None:
        return self.sink.writer() if isinstance(self.sink, TaskWrittenSink) else None

    def swept(self, stamp: Stamp) -> None:
        if isinstance(self.sink, TaskWrittenSink):
            self.sink.swept(stamp)

    def close(self) -> None:
        self.letters.close()
        self.sink.close()
