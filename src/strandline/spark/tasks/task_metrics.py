"""What tasks saw on their way, for whoever watches: where their time went, how late elements came, which keys are hot.

It travels in the facts of blocks that are sent anyway, from prepare through the key groups to the driver, and only when
the driver asks for it. Nothing is decided by it.
"""

import functools
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.kernel.blocks.block import AT, COUNTED, Block
from strandline.kernel.operator import ROWS
from strandline.kernel.window.prepare import PARTS, REPEATS
from strandline.model.histograms import PER_OCTAVE

FACT: Final = "measured"

Longs = npt.NDArray[np.int64]

_SAMPLED: Final = 4_096
"""Of so many rows each is looked at, of more only some."""
_HOTTEST: Final = 8
_LONGEST: Final = 80
"""Characters of one value that are told."""
_as_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Measured:
    """What was seen of a batch."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    """Of all tasks together, by what they did."""
    behind: Mapping[int, int] = field(default_factory=dict)
    """How far elements were behind the front of their stream: how many, by the bucket of a histogram."""
    hot: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By keyed step, the keys that got most, and how many elements."""

    def __add__(self, other: "Measured") -> "Measured":
        seconds = {
            name: self.seconds.get(name, 0) + other.seconds.get(name, 0) for name in {**self.seconds, **other.seconds}
        }
        behind = dict(Counter(self.behind) + Counter(other.behind))
        names = {**self.hot, **other.hot}
        hot = {step: dict(Counter(self.hot.get(step)) + Counter(other.hot.get(step))) for step in names}
        return Measured(seconds, behind, hot)


def asked_for(blocks: Iterable[Block]) -> Measured | None:
    """What all of these tell; None if nobody asks."""
    told = [_from_facts(block.facts[FACT]) for block in blocks if FACT in block.facts]
    return sum(told, Measured()) if told else None


def telling(block: Block, measured: Measured) -> Block:
    """The same block, telling of this too."""
    known = _from_facts(block.facts.get(FACT, {}))
    return replace(block, facts={**block.facts, FACT: to_facts(known + measured)})


def to_facts(measured: Measured) -> dict[str, Any]:
    """As plain values, for a block; what is empty is left out."""
    told = {
        "seconds": {name: round(each, 6) for name, each in measured.seconds.items()},
        "behind": {str(bucket): many for bucket, many in measured.behind.items()},
        "hot": measured.hot,
    }
    return {name: each for name, each in told.items() if each}


def _from_facts(facts: Mapping[str, Any]) -> Measured:
    behind = {int(bucket): many for bucket, many in facts.get("behind", {}).items()}
    return Measured(facts.get("seconds", {}), behind, facts.get("hot", {}))


def look(rows: pl.DataFrame, blocks: Mapping[int, Block], step: str, keys: Sequence[str], head: int | None) -> Measured:
    """What a task sends to a keyed step, looked at as far as it costs next to nothing."""
    behind = {} if head is None else _behind(rows[AT], head)
    parts = [(block.frames[PARTS], REPEATS in block.facts) for block in blocks.values() if PARTS in block.frames]
    hot = _hottest_parts([each for each, repeats in parts if not repeats], keys)
    rows_of = [block.frames[ROWS] for block in blocks.values() if ROWS in block.frames]
    rows_of += [each.filter(pl.col(COUNTED) > 0) for each, repeats in parts if repeats]
    hot.update(_hottest_rows([each for each in rows_of if each.height], keys))
    return Measured(behind=behind, hot={step: dict(hot.most_common(_HOTTEST))} if hot else {})


def _behind(times: pl.Series, head: int) -> dict[int, int]:
    """How far elements are behind what the slowest partition had reached before the batch; a sample, scaled up."""
    step = 1 + times.len() // _SAMPLED
    found = np.bincount(buckets(head - times.gather_every(step).to_numpy()))
    return {int(bucket): int(found[bucket]) * step for bucket in np.flatnonzero(found)}


def buckets(ms: Longs) -> Longs:
    """The bucket of a histogram for each length of time, as `model/histograms.py` says it."""
    some = ms >= 1
    placed: Longs = np.where(some, 1 + np.floor(np.log2(ms, where=some, out=np.zeros(ms.size)) * PER_OCTAVE), 0)
    return placed.astype(np.int64)


def _hottest_parts(parts: Sequence[pl.DataFrame], keys: Sequence[str]) -> Counter[str]:
    """The keys that most combined elements have. One that is hot is so in one window, too."""
    found = Counter[str]()
    if parts:
        counts = np.concatenate([each[COUNTED].to_numpy() for each in parts])
        for place in highest(counts, _HOTTEST).tolist():
            found[_key_at(parts, keys, place)] += int(counts[place])
    return found


def _hottest_rows(rows: Sequence[pl.DataFrame], keys: Sequence[str]) -> Counter[str]:
    """The keys that most elements have which cross as they are; a sample, scaled up."""
    found = Counter[str]()
    if rows:
        step = 1 + sum(each.height for each in rows) // _SAMPLED
        sampled = np.concatenate([hashes(each, keys, step) for each in rows])
        _, first, many = np.unique(sampled, return_index=True, return_counts=True)
        starts = np.cumsum([0] + [-(-each.height // step) for each in rows])
        for place in highest(many, _HOTTEST).tolist():
            if many[place] == 1 < step:
                break  # seen once: of how many, nobody knows
            number = int(np.searchsorted(starts, first[place], side="right")) - 1
            row = (int(first[place]) - int(starts[number])) * step
            found[_key_at(rows[number : number + 1], keys, row)] += int(many[place]) * step
    return found


def hashes(rows: pl.DataFrame, keys: Sequence[str], every: int = 1) -> npt.NDArray[np.uint64]:
    """A number for the key of each row, or of some. Column by column: to select some costs more than the numbers."""
    some = (rows[key] if every == 1 else rows[key].gather_every(every) for key in keys)
    each = [column.hash(seed=number).to_numpy() for number, column in enumerate(some)]
    return functools.reduce(np.bitwise_xor, each)


def _key_at(frames: Sequence[pl.DataFrame], keys: Sequence[str], place: int) -> str:
    """The key at a place of frames that stand one behind the other."""
    for frame in frames:
        if place < frame.height:
            return named(keys, [frame[key][place] for key in keys])
        place -= frame.height
    raise IndexError(place)


def highest(counts: Longs, many: int) -> Longs:
    """Where the highest of these are: all of them are at least what so many stretches have as their highest."""
    stretches = 8 * many
    if counts.size >= stretches * many:
        tops = counts[: counts.size // stretches * stretches].reshape(stretches, -1).max(axis=1)
        places = np.flatnonzero(counts >= np.partition(tops, -many)[-many])
    else:
        places = np.arange(counts.size)
    # Sorted, not parted: to part numbers of which most are alike takes ten times as long.
    return places[np.argsort(-counts[places], kind="stable")[:many]]


def named(columns: Sequence[str], values: Sequence[Any]) -> str:
    """Values by column as a JSON object, those that are very long cut."""
    told = {name: _short(value) for name, value in zip(columns, values, strict=True)}
    return _as_json(told)


def _short(value: Any) -> Any:
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    text = str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
