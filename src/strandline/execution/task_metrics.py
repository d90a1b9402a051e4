"""Collect metrics in tasks: time by activity, lag of elements, hot keys.

They travel in the facts of blocks that are sent anyway, from prepare through the key groups to the driver, and only if
the driver asks for them. No decision depends on them.
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
"""Rows that are looked at; of more, a sample."""
_HOTTEST: Final = 8
_LONGEST: Final = 80
"""Characters of one value that are reported."""
_as_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Measured:
    """The metrics of a batch."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    """The sum over all tasks, by activity."""
    behind: Mapping[int, int] = field(default_factory=dict)
    """Number of elements by how far they lag behind the front of their stream, by histogram bucket."""
    hot: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """For each keyed step, the keys with the most elements, and their counts."""

    def __add__(self, other: "Measured") -> "Measured":
        seconds = {
            name: self.seconds.get(name, 0) + other.seconds.get(name, 0) for name in {**self.seconds, **other.seconds}
        }
        behind = dict(Counter(self.behind) + Counter(other.behind))
        names = {**self.hot, **other.hot}
        hot = {step: dict(Counter(self.hot.get(step)) + Counter(other.hot.get(step))) for step in names}
        return Measured(seconds, behind, hot)


def collected(blocks: Iterable[Block]) -> Measured | None:
    """Sum the metrics of these blocks; None if the driver did not ask for any."""
    facts = [_from_facts(block.facts[FACT]) for block in blocks if FACT in block.facts]
    return sum(facts, Measured()) if facts else None


def with_metrics(block: Block, measured: Measured) -> Block:
    """Add metrics to a block."""
    known = _from_facts(block.facts.get(FACT, {}))
    return replace(block, facts={**block.facts, FACT: to_facts(known + measured)})


def to_facts(measured: Measured) -> dict[str, Any]:
    """Return metrics as plain values, without empty ones."""
    facts = {
        "seconds": {name: round(each, 6) for name, each in measured.seconds.items()},
        "behind": {str(bucket): many for bucket, many in measured.behind.items()},
        "hot": measured.hot,
    }
    return {name: each for name, each in facts.items() if each}


def _from_facts(facts: Mapping[str, Any]) -> Measured:
    behind = {int(bucket): many for bucket, many in facts.get("behind", {}).items()}
    return Measured(facts.get("seconds", {}), behind, facts.get("hot", {}))


def measure(
    rows: pl.DataFrame, blocks: Mapping[int, Block], step: str, keys: Sequence[str], head: int | None
) -> Measured:
    """Measure what a task sends to a keyed step, as far as it costs almost nothing."""
    behind = {} if head is None else _behind(rows[AT], head)
    parts = [(block.frames[PARTS], REPEATS in block.facts) for block in blocks.values() if PARTS in block.frames]
    hot = _hottest_parts([each for each, repeats in parts if not repeats], keys)
    rows_of = [block.frames[ROWS] for block in blocks.values() if ROWS in block.frames]
    rows_of += [each.filter(pl.col(COUNTED) > 0) for each, repeats in parts if repeats]
    hot.update(_hottest_rows([each for each in rows_of if each.height], keys))
    return Measured(behind=behind, hot={step: dict(hot.most_common(_HOTTEST))} if hot else {})


def _behind(times: pl.Series, head: int) -> dict[int, int]:
    """Count elements by their lag behind the slowest partition before the batch, from a scaled sample."""
    step = 1 + times.len() // _SAMPLED
    found = np.bincount(buckets(head - times.gather_every(step).to_numpy()))
    return {int(bucket): int(found[bucket]) * step for bucket in np.flatnonzero(found)}


def buckets(ms: Longs) -> Longs:
    """Return the histogram bucket of each duration, as `model/histograms.py` defines them."""
    some = ms >= 1
    placed: Longs = np.where(some, 1 + np.floor(np.log2(ms, where=some, out=np.zeros(ms.size)) * PER_OCTAVE), 0)
    return placed.astype(np.int64)


def _hottest_parts(parts: Sequence[pl.DataFrame], keys: Sequence[str]) -> Counter[str]:
    """Return the keys with the most pre-aggregated elements. A hot key is also hot in one window."""
    found = Counter[str]()
    if parts:
        counts = np.concatenate([each[COUNTED].to_numpy() for each in parts])
        for place in highest(counts, _HOTTEST).tolist():
            found[_key_at(parts, keys, place)] += int(counts[place])
    return found


def _hottest_rows(rows: Sequence[pl.DataFrame], keys: Sequence[str]) -> Counter[str]:
    """Return the keys with the most elements among rows, from a scaled sample."""
    found = Counter[str]()
    if rows:
        step = 1 + sum(each.height for each in rows) // _SAMPLED
        sampled = np.concatenate([hashes(each, keys, step) for each in rows])
        _, first, many = np.unique(sampled, return_index=True, return_counts=True)
        starts = np.cumsum([0] + [-(-each.height // step) for each in rows])
        for place in highest(many, _HOTTEST).tolist():
            if many[place] == 1 < step:
                break  # seen once in a sample: its count is unknown
            number = int(np.searchsorted(starts, first[place], side="right")) - 1
            row = (int(first[place]) - int(starts[number])) * step
            found[_key_at(rows[number : number + 1], keys, row)] += int(many[place]) * step
    return found


def hashes(rows: pl.DataFrame, keys: Sequence[str], every: int = 1) -> npt.NDArray[np.uint64]:
    """Hash the key of each row, or of a sample. Column by column: selecting columns costs more than hashing."""
    some = (rows[key] if every == 1 else rows[key].gather_every(every) for key in keys)
    each = [column.hash(seed=number).to_numpy() for number, column in enumerate(some)]
    return functools.reduce(np.bitwise_xor, each)


def _key_at(frames: Sequence[pl.DataFrame], keys: Sequence[str], place: int) -> str:
    """Return the key at a row number of concatenated frames."""
    for frame in frames:
        if place < frame.height:
            return named(keys, [frame[key][place] for key in keys])
        place -= frame.height
    raise IndexError(place)


def highest(counts: Longs, many: int) -> Longs:
    """Return the places of the highest counts. A bound from the maxima of stretches leaves few to sort."""
    stretches = 8 * many
    if counts.size >= stretches * many:
        tops = counts[: counts.size // stretches * stretches].reshape(stretches, -1).max(axis=1)
        places = np.flatnonzero(counts >= np.partition(tops, -many)[-many])
    else:
        places = np.arange(counts.size)
    # Sort: a partition of mostly equal numbers takes ten times as long.
    return places[np.argsort(-counts[places], kind="stable")[:many]]


def named(columns: Sequence[str], values: Sequence[Any]) -> str:
    """Return values by column as a JSON object, with very long values cut."""
    facts = {name: _short(value) for name, value in zip(columns, values, strict=True)}
    return _as_json(facts)


def _short(value: Any) -> Any:
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    text = str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
