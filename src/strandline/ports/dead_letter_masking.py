"""Dead letters on their way: whole as they leave a task, masked before anyone keeps them, to a place of their own."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final

import polars as pl

from strandline.kernel.blocks.block import OFFSET, OWN, PARTITION
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
from strandline.kernel.stateless_steps import EXCEPTION, FAILED
from strandline.plan.stages import Deliver
from strandline.ports.protocols import (
    Decoder,
    InParts,
    LedgerEntry,
    LetterBox,
    Masked,
    Masking,
    OpenLetters,
    OpenSink,
    Recorded,
    Refuses,
    Stamp,
    Writer,
    Written,
)

HIDDEN: Final = "***"
WITHHELD: Final = "withheld"


def failures(failed: pl.DataFrame, step: str | None = None) -> pl.DataFrame:
    """Rows that a function could not take, as dead letters."""
    return letters_of(with_raw(failed), step=step)


def with_raw(rows: pl.DataFrame) -> pl.DataFrame:
    """A record's bytes as they came, or what its columns say, as JSON."""
    if RAW in rows.columns:
        return rows
    mine = pl.struct(pl.exclude(f"^{OWN}.*$")).struct.json_encode().cast(pl.Binary)
    return rows.with_columns(mine.alias(RAW))


def outgoing(letters: pl.DataFrame, source: str | None, decoder: Decoder | None, mask: Iterable[str]) -> pl.DataFrame:
    """Letters as they leave a task, with nothing in them that is to be hidden."""
    known = with_source(letters, source, framed=getattr(decoder, "registry", None) is not None)
    fields = frozenset(name.casefold() for name in mask)
    if not fields or known.is_empty():
        return known
    rows = known.select(RAW, REASON, DETAIL, EXCEPTION).rows()
    told = [_hidden(row, found) for row, found in zip(rows, _masked(known, decoder, fields), strict=True)]
    shape = {RAW: pl.Binary, DETAIL: pl.String, MASKED: pl.String}
    kept = known.with_columns(pl.DataFrame(told, schema=shape, orient="row").iter_columns())
    # With all else in sight, a hash would give away a short secret to whoever tries them all.
    return kept.with_columns(pl.when(pl.col(MASKED).ne_missing(FIELDS)).then(pl.col(SHA256)).alias(SHA256))


def _masked(letters: pl.DataFrame, decoder: Decoder | None, fields: frozenset[str]) -> list[Masked | None]:
    """Each record without what the fields say; None for one that cannot be told apart, or is not there."""
    if decoder is not None and not isinstance(decoder, Masking):
        return _by_columns(letters, decoder, fields)
    hide = mask_json if decoder is None else decoder.mask
    return [None if value is None else hide(value, fields) for value in letters[RAW]]


def _hidden(row: tuple[Any, ...], found: Masked | None) -> tuple[bytes | None, str | None, str | None]:
    """What is left of a letter: its bytes, its detail, and how much was taken away."""
    raw, reason, detail, exception = row
    # A user's function may say anything, a secret in another shape too.
    said = f"{exception or 'an error'}: {WITHHELD}" if reason == FAILED else detail
    if raw is None:
        return None, said, None
    if found is None:
        return None, said if reason == FAILED else WITHHELD, WHOLE
    for text in sorted(found.hidden, key=len, reverse=True):
        said = None if said is None else said.replace(text, HIDDEN)
    return found.value, said, FIELDS


def _by_columns(letters: pl.DataFrame, decoder: Decoder, fields: frozenset[str]) -> list[Masked | None]:
    """Records of a format whose bytes cannot be changed in place, told as JSON of their columns."""
    places = pl.int_range(pl.len(), dtype=pl.Int64).alias(OFFSET)
    raw = letters.select(PARTITION, places, RAW).filter(pl.col(RAW).is_not_null())
    found: dict[int, list[bytes]] = {}
    rows = decoder.decode(raw).rows
    for place, value in with_raw(rows.drop(RAW)).select(OFFSET, RAW).iter_rows():
        found.setdefault(place, []).append(value)
    return [mask_json(b"\n".join(found[each]), fields) if each in found else None for each in range(letters.height)]


def mask_json(value: bytes, fields: frozenset[str]) -> Masked | None:
    """JSON objects, one a line, without what these fields say, however deep they stand; None if it is none."""
    hidden: list[str] = []
    try:
        lines = [value] if value.count(b"\n") == 0 or _is_one(value) else value.splitlines()
        objects = [json.loads(line) for line in lines]
        if not all(isinstance(each, dict) for each in objects):
            return None
        shown = [json.dumps(_without(each, fields, hidden), ensure_ascii=False) for each in objects]
    except (ValueError, RecursionError):
        return None
    return Masked("\n".join(shown).encode(errors="replace"), tuple(hidden))


def _is_one(value: bytes) -> bool:
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return False
    return True


def _without(value: Any, fields: frozenset[str], hidden: list[str]) -> Any:
    if isinstance(value, dict):
        return {
            name: _covered(each, hidden) if name.casefold() in fields else _without(each, fields, hidden)
            for name, each in value.items()
        }
    return [_without(each, fields, hidden) for each in value] if isinstance(value, list) else value


def _covered(value: Any, hidden: list[str]) -> str | None:
    """A mask in place of a value; what it was is gathered, with all that is inside it."""
    if value is None:
        return None
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _covered(each, hidden)
    text = value if isinstance(value, str) else json.dumps(value)
    hidden += [each for each in {text, repr(text)[1:-1], json.dumps(text)[1:-1]} if each]
    return HIDDEN


def with_letters(sink: OpenSink, output: Deliver, lineage: str) -> OpenSink:
    """A sink with a place for its dead letters: its own, or another that the output names."""
    if not isinstance(output.dead, LetterBox):
        return sink
    # Several outputs of a job may have one place for their letters.
    mine = f"{lineage}-{output.number}" if output.number else lineage
    return LettersApart(sink, output.dead.open_letters(mine))


@dataclass(frozen=True, slots=True)
class LettersApart:
    """A sink whose dead letters go elsewhere: they are kept before the batch counts as written, or it does not."""

    sink: OpenSink
    letters: OpenLetters

    def __post_init__(self) -> None:
        if isinstance(self.sink, Refuses):
            self.sink.refused_to(self._put_refused)

    def claim(self, lineage: str) -> int:
        return self.sink.claim(lineage)

    def latest(self, lineage: str) -> Recorded | None:
        return self.sink.latest(lineage)

    def commit(self, output: Output, entry: LedgerEntry) -> Written:
        # A batch that the sink knows has its letters already; if it is another of that number, the sink says so.
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
        """Those of the pipeline are there already; these are a lot of their own, and there may be several."""
        which = sha256(",".join(letters[ID]).encode()).hexdigest()[:16]
        self.letters.put(letters, replace(entry, digest=f"{entry.digest}, refused {which}"))

    def writer(self) -> Writer | None:
        return self.sink.writer() if isinstance(self.sink, InParts) else None

    def swept(self, stamp: Stamp) -> None:
        if isinstance(self.sink, InParts):
            self.sink.swept(stamp)

    def close(self) -> None:
        self.letters.close()
        self.sink.close()
