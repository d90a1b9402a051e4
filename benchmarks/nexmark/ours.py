"""The questions in our words, through the public names only."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl

import strandline as sl
from benchmarks.corpus import FILES
from benchmarks.nexmark.events import BID, COLUMNS
from benchmarks.nexmark.queries import CHEAP, DEAR, DELAY, EVERY, GAP, WINDOW

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.plan.pipeline import Keyed, Stream
    from strandline.spark.deliver import Delivered
    from strandline.spark.job import Job

CHANGES: Final = sl.repeatedly(sl.after_count(1))
DAY: Final = "date_format(at, 'yyyy-MM-dd')"
RANKS: Final = {
    "": "TRUE", "1": f"price < {CHEAP}", "2": f"price >= {CHEAP} AND price < {DEAR}", "3": f"price >= {DEAR}",
}  # fmt: skip
TIME_TYPE: Final = """CASE WHEN hour(at) >= 8 AND hour(at) <= 18 THEN 'day'
    WHEN hour(at) <= 6 OR hour(at) >= 20 THEN 'night' ELSE 'other' END"""
CHANNEL: Final = "regexp_extract(url, '(&|^)channel_id=([^&]*)', 2)"
CHANNEL_ID: Final = f"""CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2'
    WHEN 'baidu' THEN '3' ELSE {CHANNEL} END"""
NAMED: Final = f"{CHANNEL} <> '' OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')"


def bids_of(folder: str) -> sl.Elements:
    """The bids of a log."""
    return sl.read(sl.files(folder, COLUMNS, format="parquet", files_per_batch=FILES)).where(f"kind = {BID}")


def _timed(bids: sl.Elements) -> sl.Elements:
    return bids.event_time("at", sl.bounded(seconds=DELAY))


def _for_ever(keyed: "Keyed") -> "Keyed":
    """A group-by without an end, as SQL has it: no window, nothing late, an answer with every change."""
    return keyed.window(sl.everything()).keep_for_ever().trigger(CHANGES).accumulate(sl.accumulating)


def q0(bids: sl.Elements) -> sl.Elements:
    return bids.select("auction", "bidder", "price", "at", "extra")


def q1(bids: sl.Elements) -> sl.Elements:
    return bids.select("auction", "bidder", "at", "extra", price="0.908D * price")


def q2(bids: sl.Elements) -> sl.Elements:
    return bids.where("auction % 123 = 0").select("auction", "price")


def q5(bids: sl.Elements) -> sl.Panes:
    counts = (
        _timed(bids.select("auction", "at"))
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
    """Of a window the auctions with the most bids."""
    for auction, num in zip(window["auctions"], window["nums"], strict=True):
        if num == window["most"]:
            yield {"window_end": window["window_end"], "auction": auction, "num": num}


def q7(bids: sl.Elements) -> sl.Panes:
    return (
        _timed(bids.select("auction", "bidder", "price", "at", house="1"))
        .key_by("house")
        .window(sl.tumbling(seconds=WINDOW))
        .aggregate(
            price=sl.max("price"), auction=sl.argmax("auction", by="price"), bidder=sl.argmax("bidder", by="price")
        )
    )


def q11(bids: sl.Elements) -> sl.Panes:
    timed = _timed(bids.select("bidder", "at"))
    return timed.key_by("bidder").window(sl.session(seconds=GAP)).aggregate(num=sl.count())


def q12(bids: sl.Elements) -> sl.Panes:
    keyed = bids.select("bidder").processing_time().key_by("bidder").window(sl.tumbling(seconds=WINDOW))
    return keyed.trigger(CHANGES).accumulate(sl.accumulating).aggregate(num=sl.count())


def q14(bids: sl.Elements) -> sl.Elements:
    return bids.where("0.908D * price > 1000000 AND 0.908D * price < 50000000").select(
        "auction",
        "bidder",
        "at",
        price="0.908D * price",
        time_type=TIME_TYPE,
        letters="length(extra) - length(replace(extra, 'c', ''))",
    )


def _ranked(bids: sl.Elements, **others: str) -> sl.Elements:
    """What is counted, each where its price is of the rank."""
    columns = {f"{what}{number}": f"CASE WHEN {rank} THEN {of} END" for number, rank in RANKS.items()
               for what, of in (("bids", "1"), ("bidders", "bidder"), ("auctions", "auction"))}  # fmt: skip
    return _timed(bids.select("at", day=DAY, **others, **columns))


def _twelve() -> dict[str, Any]:
    plain = {f"bids{number}": sl.count(f"bids{number}") for number in RANKS}
    return plain | {f"{of}{each}": sl.count_distinct(f"{of}{each}") for of in ("bidders", "auctions") for each in RANKS}


def q15(bids: sl.Elements) -> sl.Panes:
    return _for_ever(_ranked(bids).key_by("day")).aggregate(**_twelve())


def q16(bids: sl.Elements) -> sl.Panes:
    ranked = _ranked(bids, channel="channel", minute="date_format(at, 'HH:mm')")
    return _for_ever(ranked.key_by("channel", "day")).aggregate(minute=sl.max("minute"), **_twelve())


def q17(bids: sl.Elements) -> sl.Panes:
    ranks = {f"bids{number}": f"CASE WHEN {rank} THEN 1 END" for number, rank in RANKS.items()}
    timed = _timed(bids.select("auction", "at", "price", day=DAY, **ranks))
    return _for_ever(timed.key_by("auction", "day")).aggregate(
        **{name: sl.count(name) for name in ranks},
        least=sl.min("price"),
        most=sl.max("price"),
        mean=sl.mean("price"),
        total=sl.sum("price"),
    )


def q18(bids: sl.Elements) -> sl.Panes:
    kept = ("ms", "price", "channel", "url", "extra")
    told = bids.select("bidder", "auction", "at", "price", "channel", "url", "extra", ms="unix_millis(at)")
    return _for_ever(_timed(told).key_by("bidder", "auction")).aggregate(**{name: sl.last(name) for name in kept})


def q19(bids: sl.Elements) -> sl.Panes:
    timed = _timed(bids.select("auction", "price", "at"))
    return _for_ever(timed.key_by("auction")).aggregate(prices=sl.top_k("price", 10))


def q21(bids: sl.Elements) -> sl.Elements:
    return bids.where(NAMED).select("auction", "bidder", "price", "channel", channel_id=CHANNEL_ID)


def q22(bids: sl.Elements) -> sl.Elements:
    parts = {f"dir{number}": f"get(split(url, '/'), {number + 2})" for number in (1, 2, 3)}
    return bids.select("auction", "bidder", "price", "channel", **parts)


ASKED: Final[Mapping[str, "Callable[[sl.Elements], Stream]"]] = {
    "q0": q0, "q1": q1, "q2": q2, "q5": q5, "q7": q7, "q11": q11, "q12": q12, "q14": q14, "q15": q15, "q16": q16,
    "q17": q17, "q18": q18, "q19": q19, "q21": q21, "q22": q22,
}  # fmt: skip


def pipeline(query: str, folder: str) -> sl.Pipeline:
    """A question over a log."""
    return ASKED[query](bids_of(folder)).write(sl.discard())


def start(
    spark: "SparkSession", query: str, folder: str, checkpoint: Path, listener: "Callable[[Delivered], None]"
) -> "Job":
    """A job that reads what is there and ends."""
    asked = pipeline(query, folder)
    job: Job = asked.run(spark, checkpoint=checkpoint, available_now=True, listener=listener)
    return job


def as_rows(panes: pl.DataFrame, batch: int) -> pl.DataFrame:
    """Our output as the judge reads it."""
    from strandline.kernel.blocks import END, START  # noqa: PLC0415 - beside Spark, in the process that runs it

    bounds = {START: "window_start", END: "window_end"}
    times = [
        pl.from_epoch(pl.col(own), time_unit="ms").dt.replace_time_zone("UTC").alias(name)
        for own, name in bounds.items()
        if own in panes.columns and name not in panes.columns
    ]
    users = [name for name in panes.columns if not name.startswith("@")]
    return panes.select(*users, *times, pl.lit(batch).alias("batch"))
