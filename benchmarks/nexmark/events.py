"""Generate the auction log: people, auctions and bids, seeded, out of order, partly late, stored as Parquet.

Of every fifty events one is a person, three are auctions and 46 are bids. Half of the bids go to a hot auction, three
quarters come from a hot bidder, three quarters of the auctions from a hot seller; half of the bids come through four
channels, the others through ten thousand. An event refers to what existed at its event time,
however late it arrives. Ten thousand events span a second of event time, and the log crosses midnight.
"""

import hashlib
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.corpus import Longs, kept, lags, put, shuffled

RATE: Final = 10_000
MIDNIGHT: Final = 1_700_006_400_000
START: Final = MIDNIGHT - 12_000
FLUSH_AFTER: Final = 3_600_000
PERSON, AUCTION, BID = 0, 1, 2
NOBODY: Final = -1
"""Bidder of the flush, the last bid, which closes all earlier windows."""
FIRST_ID: Final = 1_000
FIRST_CATEGORY, CATEGORIES = 10, 5
ROUND, AUCTIONS = 50, 3
IN_FLIGHT: Final = 100
ACTIVE: Final = 1_000
HOT_EVERY: Final = 100
CHANNELS: Final = 10_000
HOT_CHANNELS: Final = ("Google", "Facebook", "Baidu", "Apple")
EXTRA: Final = (110, 320, 68)
"""Padding: a person has 200 bytes, an auction 500, a bid 100 plus channel and URL."""
STATES: Final = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES: Final = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Seattle", "Kent", "Cheyenne")
COLUMNS: Final = (
    "kind int, at timestamp, id long, name string, email string, card string, city string, state string, "
    "item string, description string, initial long, reserve long, expires timestamp, seller long, category long, "
    "auction long, bidder long, price long, channel string, url string, extra string"
)

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Log:
    """A log as a value: equal values give equal bytes."""

    batches: int
    per_batch: int = 500_000
    seed: int = 7

    @property
    def name(self) -> str:
        return f"nexmark-{self.batches}x{self.per_batch}-seed{self.seed}"


@dataclass(frozen=True, slots=True)
class Placed:
    """Event numbers of a batch, in arrival order and in event-time order."""

    number: Longs
    happened: Longs
    at: Longs
    kind: Longs


def placed(log: Log, batch: int, random: np.random.Generator) -> Placed:
    """Return the event time and kind of each event of a batch."""
    number = batch * log.per_batch + shuffled(random, log.per_batch)
    behind = lags(random, log.per_batch, late=True)
    happened = np.maximum(number - behind * RATE // 1000, 0)
    turn = number % ROUND
    kind = np.where(turn == 0, PERSON, np.where(turn <= AUCTIONS, AUCTION, BID))
    return Placed(number, happened, START + number * 1000 // RATE - behind, kind)


def _last_person(number: Longs) -> Longs:
    return number // ROUND


def _last_auction(number: Longs) -> Longs:
    """Return the latest auction at each event; auctions precede bids, so one always exists."""
    return np.maximum(number // ROUND * AUCTIONS + np.minimum(number % ROUND, AUCTIONS) - 1, 0)


def table_of(log: Log, batch: int) -> pa.Table:
    """Generate one batch from its number alone."""
    random = np.random.default_rng([log.seed, batch])
    events = placed(log, batch, random)
    is_person, is_auction, is_bid = (events.kind == kind for kind in (PERSON, AUCTION, BID))
    texts = texts_of(log.seed)

    def words(pool: str, mask: Mask) -> pa.Array:
        return _taken(texts.pools[pool], random.integers(0, len(texts.pools[pool]), len(mask)), mask)

    price = _prices(random, len(events.at))
    own = np.where(is_person, _last_person(events.number), _last_auction(events.number))
    channel = _channels(random, len(events.at))
    return pa.table({
        "kind": _longs(events.kind).cast(pa.int32()),
        "at": _times(events.at),
        "id": _longs(own + FIRST_ID, is_person | is_auction),
        "name": words("name", is_person),
        "email": words("email", is_person),
        "card": words("card", is_person),
        "city": words("city", is_person),
        "state": words("state", is_person),
        "item": words("item", is_auction),
        "description": words("description", is_auction),
        "initial": _longs(price, is_auction),
        "reserve": _longs(price + _prices(random, len(price)), is_auction),
        "expires": _times(events.at + random.integers(1_000, 20_000, len(price)), is_auction),
        "seller": _longs(_people(random, events.happened) + FIRST_ID, is_auction),
        "category": _longs(random.integers(FIRST_CATEGORY, FIRST_CATEGORY + CATEGORIES, len(price)), is_auction),
        "auction": _longs(_auctions(random, events.happened) + FIRST_ID, is_bid),
        "bidder": _longs(_people(random, events.happened, shift=1) + FIRST_ID, is_bid),
        "price": _longs(price, is_bid),
        "channel": _taken(texts.channels, channel, is_bid),
        "url": _taken(texts.urls, channel, is_bid),
        "extra": _taken(texts.extras, events.kind * 1_000 + random.integers(0, 1_000, len(price))),
    })  # fmt: skip


def _prices(random: np.random.Generator, count: int) -> Longs:
    """Draw prices, log-uniform from one to a million, in cents."""
    return np.round(10 ** (6 * random.random(count)) * 100).astype(np.int64)


def _channels(random: np.random.Generator, count: int) -> Longs:
    hot = random.random(count) < 0.5
    return np.where(
        hot,
        random.integers(0, len(HOT_CHANNELS), count),
        random.integers(len(HOT_CHANNELS), len(HOT_CHANNELS) + CHANNELS, count),
    )


def _auctions(random: np.random.Generator, happened: Longs) -> Longs:
    last = _last_auction(happened)
    any_ = last - random.integers(0, IN_FLIGHT, len(last))
    return np.where(random.random(len(last)) < 0.5, last // HOT_EVERY * HOT_EVERY, np.maximum(any_, 0))


def _people(random: np.random.Generator, happened: Longs, *, shift: int = 0) -> Longs:
    """Draw people; three in four are the hot one, which differs for bidders and sellers."""
    last = _last_person(happened)
    any_ = last - random.integers(0, ACTIVE, len(last))
    hot = np.minimum(last // HOT_EVERY * HOT_EVERY + shift, last)
    return np.where(random.random(len(last)) < 0.75, hot, np.maximum(any_, 0))


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts to choose from; each batch draws its own."""

    pools: dict[str, list[str]]
    channels: list[str]
    urls: list[str]
    extras: list[str]
    """Padding texts, a thousand per kind of event."""


@cache
def texts_of(seed: int) -> Texts:
    """Return the texts of a log."""
    random = np.random.default_rng([seed, 1 << 32])
    pools = {
        "name": [f"{_word(random, 6).title()} {_word(random, 7).title()}" for _ in range(1_000)],
        "email": [f"{_word(random, 7)}@{_word(random, 5)}.example" for _ in range(1_000)],
        "card": [" ".join(f"{part:04d}" for part in random.integers(0, 10_000, 4)) for _ in range(1_000)],
        "city": [*CITIES],
        "state": [*STATES],
        "item": [_word(random, 20) for _ in range(1_000)],
        "description": [_word(random, 100) for _ in range(1_000)],
    }
    channels = [*HOT_CHANNELS, *(f"channel-{number}" for number in range(CHANNELS))]
    urls = [_url(random, number - len(HOT_CHANNELS)) for number in range(len(channels))]
    extras = [
        _word(random, int(length))
        for usual in EXTRA
        for length in random.integers(usual * 4 // 5, usual * 6 // 5, 1_000)
    ]
    return Texts(pools, channels, urls, extras)


def _word(random: np.random.Generator, length: int) -> str:
    return random.integers(ord("a"), ord("z") + 1, length).astype(np.uint8).tobytes().decode()


def _url(random: np.random.Generator, channel: int) -> str:
    """Return the channels' URLs; nine in ten of the many channels are named in theirs, the four large ones never."""
    path = "/".join(_word(random, 5) for _ in range(3))
    named = f"&channel_id={channel * 7_919 % 1_000_003}" if channel >= 0 and random.random() < 0.9 else ""
    return f"https://auctions.example/{path}/item.htm?query=1{named}"


def _longs(values: Longs, mask: Mask | None = None) -> pa.Array:
    return pa.array(values, pa.int64(), mask=None if mask is None else ~mask)


def _times(values: Longs, mask: Mask | None = None) -> pa.Array:
    return pa.array(values * 1000, pa.timestamp("us", tz="UTC"), mask=None if mask is None else ~mask)


def _taken(words: list[str], which: Longs, mask: Mask | None = None) -> pa.Array:
    chosen = pa.array(which, pa.int32(), mask=None if mask is None else ~mask)
    return pa.DictionaryArray.from_arrays(chosen, pa.array(words)).cast(pa.string())


def flush_of(log: Log) -> pa.Table:
    """Return the last batch: one bid so far ahead that all earlier windows close."""
    end = START + log.batches * log.per_batch * 1000 // RATE + FLUSH_AFTER
    empty = table_of(Log(1, ROUND, log.seed), 0).slice(0, 1)
    bid = {
        "kind": pa.array([BID], pa.int32()), "at": _times(np.array([end])),
        **{name: pa.array([NOBODY], pa.int64()) for name in ("auction", "bidder")}, "price": pa.array([0], pa.int64()),
        **{name: pa.array([""]) for name in ("channel", "url", "extra")},
    }  # fmt: skip
    return pa.table({field.name: bid.get(field.name, pa.nulls(1, field.type)) for field in empty.schema})


def written(log: Log, cache: Path) -> tuple[Path, str]:
    """Return the folder of a log, written if missing, and the SHA-256 of its rows."""
    return kept(log.name, asdict(log), cache, lambda folder: _write(log, folder))


def _write(log: Log, folder: Path) -> str:
    digest = hashlib.sha256()
    for number in range(log.batches + 1):
        table = table_of(log, number) if number < log.batches else flush_of(log)
        digest.update(_bytes(table))
        put(folder, number, table)
    return digest.hexdigest()


def _bytes(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()
