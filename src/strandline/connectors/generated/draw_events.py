"""Draw the events of a generated stream; each is a function of the seed, its partition and its number only.

Events are due by a schedule that can be evaluated both ways: when the n-th is due, and how many are due by a time.
Random numbers are drawn for a whole chunk at a time, so that a range does not depend on where it was cut. Each knob has
random numbers of its own, so that changing one knob leaves the effects of the others unchanged.
"""

from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.connectors.generated.settings import Knobs

CHUNK: Final = 1024
_DRAWS: Final = 14
_INTACT: Final = -1
_HOUR: Final = 3_600_000
_DUPLICATE_DISTANCE: Final = 64
"""How many records back a duplicate may repeat."""
EMITTED: Final = "emitted"
POISON: Final = "poison"

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def moments(knobs: Knobs, partition: int, numbers: Ints) -> Ints:
    """When these records of a partition are due, in milliseconds after the start."""
    work = numbers.astype(np.float64) * (1_000 * knobs.width / knobs.rate)
    for number, first, last in knobs.idle:
        if number == partition:
            before, after = (float(_work(knobs, np.array([float(at)]))[0]) for at in (first, last))
            work[work >= before] += after - before
    return np.floor(_inverse_work(knobs, work)).astype(np.int64)


def due(knobs: Knobs, partition: int, elapsed: int) -> int:
    """Count the records of a partition that are due this many milliseconds after the start."""
    most = knobs.count(partition)
    if elapsed < 0:
        return 0
    # The schedule is monotonic, so the first record that is not due is found by bisection.
    low, high = 0, int(_work(knobs, np.array([float(elapsed) + 1]))[0] * knobs.rate / (1_000 * knobs.width)) + 2
    high = high if most is None else min(high, most)
    while low < high:
        middle = (low + high) // 2
        if moments(knobs, partition, np.array([middle]))[0] <= elapsed:
            low = middle + 1
        else:
            high = middle
    return low


def _work(knobs: Knobs, times: Floats) -> Floats:
    """How much of the stream is due by these times, in milliseconds at the plain rate."""
    if knobs.bursts is None:
        return times
    every, length, factor = knobs.bursts
    whole, rest = np.divmod(times, every)
    fast, slow = np.minimum(rest, length), np.maximum(rest - length, 0)
    return np.asarray(whole * (length * factor + every - length) + fast * factor + slow)


def _inverse_work(knobs: Knobs, work: Floats) -> Floats:
    """The inverse of `_work`."""
    if knobs.bursts is None:
        return work
    every, length, factor = knobs.bursts
    whole, rest = np.divmod(work, length * factor + every - length)
    burst = length * factor
    return np.asarray(whole * every + np.where(rest < burst, rest / factor, length + rest - burst))


def events(knobs: Knobs, partition: int, start: int, end: int, origin: int) -> pl.DataFrame:
    """The records [start, end) of a partition before breaking them: id, key, value, at; when they are due; how to break
    them."""
    found = [_chunk(knobs, partition, chunk, origin) for chunk in range(start // CHUNK, -(-end // CHUNK))]
    if not found:
        return _chunk(knobs, partition, 0, origin).clear()
    first = start // CHUNK * CHUNK
    return pl.concat(found)[start - first : end - first]


def _chunk(knobs: Knobs, partition: int, chunk: int, origin: int) -> pl.DataFrame:
    draws = np.random.default_rng([knobs.seed, partition, chunk]).random((_DRAWS, CHUNK))
    numbers = np.arange(chunk * CHUNK, (chunk + 1) * CHUNK)
    emitted = moments(knobs, partition, numbers)
    broken = np.where(draws[0] < knobs.poison, (draws[1] * len(knobs.poisons)).astype(np.int64), _INTACT)
    drift = dict(knobs.clock_drift).get(partition, 0.0)
    at = origin + emitted + (drift * emitted).astype(np.int64) + _shift(knobs, draws)
    # Box-Muller transform of numbers whose order is fixed: a library's own normal draws may change between releases.
    normal = np.sqrt(-2 * np.log1p(-draws[2])) * np.cos(2 * np.pi * draws[3])
    value = np.round(knobs.mean + knobs.mean_per_hour * emitted / _HOUR + knobs.spread * normal, 3)
    key = np.searchsorted(_key_shares(knobs.keys, knobs.skew), draws[4], side="right")
    source = _duplicate_sources(draws[5] < knobs.duplicates, draws[6])
    drawn = pl.DataFrame({"id": numbers, "key": np.minimum(key, knobs.keys - 1), "value": value, "at": at})
    frame = drawn[source].with_columns(
        pl.format(f"{partition}-{{}}", "id").alias("id"),
        pl.format("k{}", "key").alias("key"),
        pl.col("at").cast(pl.Datetime("ms", "UTC")).cast(pl.Datetime("us", "UTC")),
    )
    kinds = pl.Series(POISON, [None if each == _INTACT else knobs.poisons[each] for each in broken.tolist()], pl.String)
    return frame.with_columns(pl.Series(EMITTED, origin + emitted), kinds)


def _shift(knobs: Knobs, draws: Floats) -> Ints:
    """By how much event times differ from the schedule, negative for late events; the worst effect on an event wins."""
    shift = np.where(draws[7] < knobs.disorder, -np.ceil(draws[8] * knobs.distance), 0)
    shift = np.where(draws[9] < knobs.late, -np.ceil((1 + draws[10]) * knobs.late_by), shift)
    shift = np.where(draws[11] < knobs.future, np.ceil((1 + draws[12]) * knobs.future_by), shift)
    return np.asarray(shift.astype(np.int64))


def _duplicate_sources(repeats: npt.NDArray[np.bool_], draw: Floats) -> Ints:
    """For each place the index of its event: its own, or a slightly earlier one in the chunk for duplicates."""
    places = np.arange(CHUNK)
    back = np.minimum(1 + (draw * _DUPLICATE_DISTANCE).astype(np.int64), places)
    source = np.where(repeats, places - back, places)
    while (source[source] != source).any():
        source = source[source]
    return source


@lru_cache(maxsize=8)
def _key_shares(many: int, skew: float) -> Floats:
    """Cumulative share of events by key rank, by Zipf's law with this exponent."""
    weights = np.arange(1, many + 1, dtype=np.float64) ** -skew
    return np.asarray(np.cumsum(weights) / weights.sum())


def records(knobs: Knobs, partition: int, start: int, end: int, origin: int) -> list[bytes]:
    """Encode the records as bytes, and break those to be broken."""
    meant = events(knobs, partition, start, end, origin)
    found: list[bytes] = knobs.decoder.encode(meant.drop(EMITTED, POISON)).to_list()
    kinds = meant[POISON]
    for place in kinds.is_not_null().arg_true():
        found[place] = _break(knobs.format, kinds[place], found[place])
    return found


def _break(format_: str, kind: str, whole: bytes) -> bytes:
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
    """Split encoded text into the part before the value, the value, and the time."""
    if format_ == "csv":
        name, key, value, at = text.split(",")
        return f"{name},{key},", value, at
    before, name, rest = text.partition('"value":')
    value, _, at = rest.partition(',"at":"')
    return before + name, value, at.removesuffix('"}')
