"""Define the queries in Strandline, with public names only."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl

import strandline as sl
from benchmarks.corpus import FILES
from benchmarks.nexmark.events import BID, COLUMNS
from benchmarks.nexmark.queries import CHEAP, DEAR, DELAY, EVERY, GAP, WINDOW
from strandline.model import ddl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.plan.pipeline import Keyed, Stream
    from strandline.spark.delivery.deliver import Delivered
    from strandline.spark.job import Job

CHANGES: Final = sl.repeatedly(sl.after_count(1))
AT, PRICE, URL, BIDDER = pl.col("at"), pl.col("price"), pl.col("url"), pl.col("bidder")
DAY: Final = AT.dt.strftime("%Y-%m-%d")
RANKS: Final = {
    "": pl.lit(value=True), "1": PRICE < CHEAP, "2": (PRICE >= CHEAP) & (PRICE < DEAR), "3": PRICE >= DEAR,
}  # fmt: skip
HOUR: Final = AT.dt.hour()
TIME_TYPE: Final = (
    pl.when((HOUR >= 8) & (HOUR <= 18)).then(pl.lit("day"))
    .when((HOUR <= 6) | (HOUR >= 20)).then(pl.lit("night")).otherwise(pl.lit("other"))
)  # fmt: skip
NUMBERS: Final = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
KNOWN: Final = pl.col("channel").str.to_lowercase().replace_strict(NUMBERS, default=None, return_dtype=pl.String)
WRITTEN: Final = URL.str.extract("(?:&|^)channel_id=([^&]*)", 1)


def bids_of(folder: str, *columns: str) -> sl.Elements:
    """Read the bids of a log with the columns a query needs."""
    types = ddl.parse(COLUMNS)
    wanted = ", ".join(f"{name} {types[name]}" for name in ("kind", *columns))
    return sl.read(sl.files(folder, wanted, format="parquet", files_per_batch=FILES)).where(pl.col("kind") == BID)


def _timed(bids: sl.Elements) -> sl.Elements:
    return bids.event_time("at", sl.bounded(seconds=DELAY))


def _for_ever(keyed: "Keyed") -> "Keyed":
    """Group without windows, as in SQL: nothing is late, a row with each change."""
    return keyed.window(sl.everything()).keep_for_ever().trigger(CHANGES).accumulate(sl.accumulating)


def q0(folder: str) -> sl.Elements:
    names = ("auction", "bidder", "price", "at", "extra")
    return bids_of(folder, *names).select(*names)


def q1(folder: str) -> sl.Elements:
    names = ("auction", "bidder", "at", "extra")
    return bids_of(folder, *names, "price").select(*names, price=0.908 * PRICE)


def q2(folder: str) -> sl.Elements:
    bids = bids_of(folder, "auction", "price")
    return bids.where(pl.col("auction") % 123 == 0).select("auction", "price")


def q5(folder: str) -> sl.Panes:
    counts = (
        _timed(bids_of(folder, "auction", "at"))
        .key_by("auction")
        .window(sl.sliding(seconds=WINDOW, every=f"{EVERY}s"))
        .aggregate(num=sl.count())
    )
    # A window's time is its last instant, so that those of one end meet in one window of the length of a slide.
    whole = (
        counts.key_by("window_end")
        .window(sl.tumbling(seconds=EVERY))
        .aggregate(most=sl.max("num"), auctions=sl.collect("auction"), nums=sl.collect("num"))
    )
    return whole.flat_map(hottest, "window_end timestamp, auction long, num long")


def hottest(window: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Return a window's auctions with the most bids."""
    for auction, num in zip(window["auctions"], window["nums"], strict=True):
        if num == window["most"]:
            yield {"window_end": window["window_end"], "auction": auction, "num": num}


def q7(folder: str) -> sl.Panes:
    return (
        _timed(bids_of(folder, "auction", "bidder", "price", "at").with_columns(house=pl.lit(1)))
        .key_by("house")
        .window(sl.tumbling(seconds=WINDOW))
        .aggregate(
            price=sl.max("price"), auction=sl.argmax("auction", by="price"), bidder=sl.argmax("bidder", by="price")
        )
    )


def q11(folder: str) -> sl.Panes:
    timed = _timed(bids_of(folder, "bidder", "at"))
    return timed.key_by("bidder").window(sl.session(seconds=GAP)).aggregate(num=sl.count())


def q12(folder: str) -> sl.Panes:
    keyed = bids_of(folder, "bidder").processing_time().key_by("bidder").window(sl.tumbling(seconds=WINDOW))
    return keyed.trigger(CHANGES).accumulate(sl.accumulating).aggregate(num=sl.count())


def q14(folder: str) -> sl.Elements:
    bids = bids_of(folder, "auction", "bidder", "price", "at", "extra").with_columns(price=0.908 * PRICE)
    return bids.where((PRICE > 1_000_000) & (PRICE < 50_000_000)).select(
        "auction",
        "bidder",
        "at",
        "price",
        time_type=TIME_TYPE,
        letters=pl.col("extra").str.count_matches("c", literal=True).cast(pl.Int64),
    )


def _ranked(bids: sl.Elements, *others: str, **computed: pl.Expr) -> sl.Elements:
    """Return the counts, restricted to a price rank."""
    columns = {f"{what}{number}": pl.when(rank).then(of) for number, rank in RANKS.items()
               for what, of in (("bids", pl.lit(1)), ("bidders", BIDDER), ("auctions", pl.col("auction")))}  # fmt: skip
    return _timed(bids.select("at", *others, day=DAY, **computed, **columns))


def _twelve() -> dict[str, Any]:
    plain = {f"bids{number}": sl.count(f"bids{number}") for number in RANKS}
    return plain | {f"{of}{each}": sl.count_distinct(f"{of}{each}") for of in ("bidders", "auctions") for each in RANKS}


def q15(folder: str) -> sl.Panes:
    ranked = _ranked(bids_of(folder, "auction", "bidder", "price", "at"))
    return _for_ever(ranked.key_by("day")).aggregate(**_twelve())


def q16(folder: str) -> sl.Panes:
    bids = bids_of(folder, "auction", "bidder", "price", "at", "channel")
    ranked = _ranked(bids, "channel", minute=AT.dt.strftime("%H:%M"))
    return _for_ever(ranked.key_by("channel", "day")).aggregate(minute=sl.max("minute"), **_twelve())


def q17(folder: str) -> sl.Panes:
    ranks = {f"bids{number}": pl.when(rank).then(pl.lit(1)) for number, rank in RANKS.items()}
    timed = _timed(bids_of(folder, "auction", "at", "price").with_columns(day=DAY, **ranks))
    return _for_ever(timed.key_by("auction", "day")).aggregate(
        **{name: sl.count(name) for name in ranks},
        least=sl.min("price"),
        most=sl.max("price"),
        mean=sl.mean("price"),
        total=sl.sum("price"),
    )


def q18(folder: str) -> sl.Panes:
    kept = ("ms", "price", "channel", "url", "extra")
    told = bids_of(folder, "bidder", "auction", "at", *kept[1:]).with_columns(ms=AT.dt.epoch("ms"))
    return _for_ever(_timed(told).key_by("bidder", "auction")).aggregate(**{name: sl.last(name) for name in kept})


def q19(folder: str) -> sl.Panes:
    timed = _timed(bids_of(folder, "auction", "price", "at"))
    return _for_ever(timed.key_by("auction")).aggregate(prices=sl.top_k("price", 10))


def q21(folder: str) -> sl.Elements:
    names = ("auction", "bidder", "price", "channel")
    bids = bids_of(folder, *names, "url").with_columns(channel_id=pl.coalesce(KNOWN, WRITTEN))
    return bids.where(pl.col("channel_id") != "").select(*names, "channel_id")


def q22(folder: str) -> sl.Elements:
    names = ("auction", "bidder", "price", "channel")
    parts = {f"dir{number}": URL.str.split("/").list.get(number + 2, null_on_oob=True) for number in (1, 2, 3)}
    return bids_of(folder, *names, "url").select(*names, **parts)


ASKED: Final[Mapping[str, "Callable[[str], Stream]"]] = {
    "q0": q0, "q1": q1, "q2": q2, "q5": q5, "q7": q7, "q11": q11, "q12": q12, "q14": q14, "q15": q15, "q16": q16,
    "q17": q17, "q18": q18, "q19": q19, "q21": q21, "q22": q22,
}  # fmt: skip


def pipeline(query: str, folder: str, *, shown: bool = False) -> sl.Pipeline:
    """Build a query over a log; discard its output, or pass it to a listener."""
    asked = ASKED[query](folder)
    return (
        asked.write(sl.call(lambda *_: None, name="shown"), delivery="at_least_once")
        if shown
        else asked.write(sl.discard())
    )


def start(
    spark: "SparkSession",
    query: str,
    folder: str,
    checkpoint: Path,
    listener: "Callable[[Delivered], None]",
    *,
    shown: bool,
) -> "Job":
    """Start a job that reads the available data and ends."""
    asked = pipeline(query, folder, shown=shown)
    job: Job = asked.run(spark, checkpoint=checkpoint, available_now=True, listener=listener)
    return job


def as_rows(panes: pl.DataFrame, batch: int) -> pl.DataFrame:
    """Convert our output to the form the check reads."""
    from strandline.kernel.blocks.block import END, START  # noqa: PLC0415 - beside Spark, in the process that runs it

    bounds = {START: "window_start", END: "window_end"}
    times = [
        pl.from_epoch(pl.col(own), time_unit="ms").dt.replace_time_zone("UTC").alias(name)
        for own, name in bounds.items()
        if own in panes.columns and name not in panes.columns
    ]
    users = [name for name in panes.columns if not name.startswith("@")]
    return panes.select(*users, *times, pl.lit(batch).alias("batch"))
