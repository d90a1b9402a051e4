"""What a generated stream holds: each event a function of the seed, its partition and its number, and of nothing else.

Events are due by a schedule that can be asked both ways: when is the n-th due, how many are due by now. Numbers are
drawn for a whole chunk at a time, so that a range does not depend on where it was cut, and each knob has random
numbers of its own, so that turning one leaves the others' events as they were.
"""

from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.connectors.generated.settings import Knobs

CHUNK: Final = 1024
_DRAWS: Final = 14
_NONE: Final = -1
_HOUR: Final = 3_600_000
_BACK: Final = 64
"""A duplicate repeats one of so many records before it."""
EMITTED: Final = "emitted"
POISON: Final = "poison"

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def moments(ask: Knobs, partition: int, numbers: Ints) -> Ints:
    """When these records of a partition are due, in milliseconds after the start."""
    work = numbers.astype(np.float64) * (1_000 * ask.width / ask.rate)
    for number, first, last in ask.idle:
        if number == partition:
            before, after = (float(_work(ask, np.array([float(at)]))[0]) for at in (first, last))
            work[work >= before] += after - before
    return np.floor(_when(ask, work)).astype(np.int64)


def due(ask: Knobs, partition: int, elapsed: int) -> int:
    """How many records of a partition are due so many milliseconds after the start."""
    most = ask.count(partition)
    if elapsed < 0:
        return 0
    # The schedule only ever rises, so that the first that is not due is found by halving.
    low, high = 0, int(_work(ask, np.array([float(elapsed) + 1]))[0] * ask.rate / (1_000 * ask.width)) + 2
    high = high if most is None else min(high, most)
    while low < high:
        middle = (low + high) // 2
        if moments(ask, partition, np.array([middle]))[0] <= elapsed:
            low = middle + 1
        else:
            high = middle
    return low


def _work(ask: Knobs, times: Floats) -> Floats:
    """How much of the stream is due by these times, in milliseconds at the plain rate."""
    if ask.bursts is None:
        return times
    every, length, factor = ask.bursts
    whole, rest = np.divmod(times, every)
    fast, slow = np.minimum(rest, length), np.maximum(rest - length, 0)
    return np.asarray(whole * (length * factor + every - length) + fast * factor + slow)


def _when(ask: Knobs, work: Floats) -> Floats:
    """The other way round."""
    if ask.bursts is None:
        return work
    every, length, factor = ask.bursts
    whole, rest = np.divmod(work, length * factor + every - length)
    burst = length * factor
    return np.asarray(whole * every + np.where(rest < burst, rest / factor, length + rest - burst))


def events(ask: Knobs, partition: int, start: int, end: int, origin: int) -> pl.DataFrame:
    """The records [start, end) of a partition as they were meant: id, key, value, at; when they are due, how broken."""
    found = [_chunk(ask, partition, chunk, origin) for chunk in range(start // CHUNK, -(-end // CHUNK))]
    if not found:
        return _chunk(ask, partition, 0, origin).clear()
    first = start // CHUNK * CHUNK
    return pl.concat(found)[start - first : end - first]


def _chunk(ask: Knobs, partition: int, chunk: int, origin: int) -> pl.DataFrame:
    draws = np.random.default_rng([ask.seed, partition, chunk]).random((_DRAWS, CHUNK))
    numbers = np.arange(chunk * CHUNK, (chunk + 1) * CHUNK)
    emitted = moments(ask, partition, numbers)
    broken = np.where(draws[0] < ask.poison, (draws[1] * len(ask.poisons)).astype(np.int64), _NONE)
    drift = dict(ask.clock_drift).get(partition, 0.0)
    at = origin + emitted + (drift * emitted).astype(np.int64) + _shift(ask, draws)
    # By Box and Muller, of numbers whose order is fixed: what a library draws may change with its release.
    normal = np.sqrt(-2 * np.log1p(-draws[2])) * np.cos(2 * np.pi * draws[3])
    value = np.round(ask.mean + ask.mean_per_hour * emitted / _HOUR + ask.spread * normal, 3)
    key = np.searchsorted(_keys(ask.keys, ask.skew), draws[4], side="right")
    source = _repeated(draws[5] < ask.duplicates, draws[6])
    drawn = pl.DataFrame({"id": numbers, "key": np.minimum(key, ask.keys - 1), "value": value, "at": at})
    frame = drawn[source].with_columns(
        pl.format(f"{partition}-{{}}", "id").alias("id"),
        pl.format("k{}", "key").alias("key"),
        pl.col("at").cast(pl.Datetime("ms", "UTC")).cast(pl.Datetime("us", "UTC")),
    )
    kinds = pl.Series(POISON, [None if each == _NONE else ask.poisons[each] for each in broken.tolist()], pl.String)
    return frame.with_columns(pl.Series(EMITTED, origin + emitted), kinds)


def _shift(ask: Knobs, draws: Floats) -> Ints:
    """By how much events are earlier than they were due, or in the future; the worst that hits one counts."""
    shift = np.where(draws[7] < ask.disorder, -np.ceil(draws[8] * ask.distance), 0)
    shift = np.where(draws[9] < ask.late, -np.ceil((1 + draws[10]) * ask.late_by), shift)
    shift = np.where(draws[11] < ask.future, np.ceil((1 + draws[12]) * ask.future_by), shift)
    return np.asarray(shift.astype(np.int64))


def _repeated(repeats: npt.NDArray[np.bool_], draw: Floats) -> Ints:
    """For each place the one whose event stands there: its own, or one a little before it in the chunk."""
    places = np.arange(CHUNK)
    back = np.minimum(1 + (draw * _BACK).astype(np.int64), places)
    source = np.where(repeats, places - back, places)
    while (source[source] != source).any():
        source = source[source]
    return source


@lru_cache(maxsize=8)
def _keys(many: int, skew: float) -> Floats:
    """The share of the events that the first keys have together; Zipf's law, by the exponent."""
    weights = np.arange(1, many + 1, dtype=np.float64) ** -skew
    return np.asarray(np.cumsum(weights) / weights.sum())


def records(ask: Knobs, partition: int, start: int, end: int, origin: int) -> list[bytes]:
    """The same as bytes, the broken ones broken."""
    meant = events(ask, partition, start, end, origin)
    found: list[bytes] = ask.decoder.encode(meant.drop(EMITTED, POISON)).to_list()
    kinds = meant[POISON]
    for place in kinds.is_not_null().arg_true():
        found[place] = _broken(ask.format, kinds[place], found[place])
    return found


def _broken(format_: str, kind: str, whole: bytes) -> bytes:
    before, value, at = _parts(format_, whole.decode())
    after = whole.decode()[len(before) + len(value) :]
    match kind:
        case "cut":
            return whole[: len(whole) // 4]
        case "utf8":
            return b"\xff\xfe" + whole
        case "empty":
            return b""
        case "type":
            many = '"many"' if format_ == "json" else "many"
            return f"{before}{many}{after}".encode()
        case "time":
            return f"{before}{value}{after.replace(at, 'half past nine')}".encode()
        case _:  # missing
            return f"{before}{value}{'}' if format_ == 'json' else ''}".encode()


def _parts(format_: str, text: str) -> tuple[str, str, str]:
    """What stands before the value, the value, and the time, as they are written."""
    if format_ == "csv":
        name, key, value, at = text.split(",")
        return f"{name},{key},", value, at
    before, name, rest = text.partition('"value":')
    value, _, at = rest.partition(',"at":"')
    return before + name, value, at.removesuffix('"}')
