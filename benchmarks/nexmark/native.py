"""Define the queries in native Spark as a user writes them, where Spark can express them."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from benchmarks.nexmark.events import BID, COLUMNS
from benchmarks.nexmark.queries import CHEAP, DEAR, DELAY, EVERY, GAP, QUERIES, WINDOW, Speaks
from benchmarks.peers.spark import stream

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

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


def q0(bids: "DataFrame") -> "DataFrame":
    return bids.select("auction", "bidder", "price", "at", "extra")


def q1(bids: "DataFrame") -> "DataFrame":
    return bids.select("auction", "bidder", F.expr("0.908D * price").alias("price"), "at", "extra")


def q2(bids: "DataFrame") -> "DataFrame":
    return bids.where("auction % 123 = 0").select("auction", "price")


def q5(bids: "DataFrame") -> "DataFrame":
    counts = (
        _timed(bids)
        .groupBy("auction", F.window("at", f"{WINDOW} seconds", f"{EVERY} seconds").alias("of"))
        .agg(F.count("*").alias("num"))
    )
    ends = counts.groupBy(F.window("of", f"{EVERY} seconds").alias("window"))
    whole = ends.agg(F.max("num").alias("most"), F.collect_list(F.struct("auction", "num")).alias("all"))
    hottest = whole.select("window", F.explode(F.expr("filter(all, each -> each.num = most)")).alias("hot"))
    return hottest.select("window.end", "hot.auction", "hot.num").withColumnRenamed("end", "window_end")


def q7(bids: "DataFrame") -> "DataFrame":
    best = (
        _timed(bids)
        .groupBy(F.window("at", f"{WINDOW} seconds").alias("window"))
        .agg(F.max("price").alias("price"), F.max_by(F.struct("auction", "bidder"), "price").alias("of"))
    )
    return best.select("price", "of.auction", "of.bidder", "window")


def q11(bids: "DataFrame") -> "DataFrame":
    sessions = _timed(bids).groupBy("bidder", F.session_window("at", f"{GAP} seconds").alias("window"))
    return sessions.agg(F.count("*").alias("num"))


def q12(bids: "DataFrame") -> "DataFrame":
    seen = bids.select("bidder", F.current_timestamp().alias("seen"))
    return seen.groupBy("bidder", F.window("seen", f"{WINDOW} seconds").alias("window")).agg(F.count("*").alias("num"))


def q14(bids: "DataFrame") -> "DataFrame":
    return bids.where("0.908D * price > 1000000 AND 0.908D * price < 50000000").select(
        "auction", "bidder", "at",
        F.expr("0.908D * price").alias("price"),
        F.expr(TIME_TYPE).alias("time_type"),
        F.expr("length(extra) - length(replace(extra, 'c', ''))").alias("letters"),
    )  # fmt: skip


def _counts() -> "list[Column]":
    """Count distinct values with exact sets, since Spark has no streaming distinct count."""
    plain = [F.count(F.expr(f"CASE WHEN {rank} THEN 1 END")).alias(f"bids{number}") for number, rank in RANKS.items()]
    return plain + [
        F.size(F.collect_set(F.expr(f"CASE WHEN {rank} THEN {of} END"))).alias(f"{of}s{number}")
        for of in ("bidder", "auction")
        for number, rank in RANKS.items()
    ]


def q15(bids: "DataFrame") -> "DataFrame":
    return bids.groupBy(F.expr(DAY).alias("day")).agg(*_counts())


def q16(bids: "DataFrame") -> "DataFrame":
    minute = F.max(F.date_format("at", "HH:mm")).alias("minute")
    return bids.groupBy("channel", F.expr(DAY).alias("day")).agg(minute, *_counts())


def q17(bids: "DataFrame") -> "DataFrame":
    ranks = [F.count(F.expr(f"CASE WHEN {rank} THEN 1 END")).alias(f"bids{number}") for number, rank in RANKS.items()]
    return bids.groupBy("auction", F.expr(DAY).alias("day")).agg(
        *ranks,
        F.min("price").alias("least"),
        F.max("price").alias("most"),
        F.avg("price").alias("mean"),
        F.sum("price").alias("total"),
    )


def q18(bids: "DataFrame") -> "DataFrame":
    bid = F.struct(F.expr("unix_millis(at)").alias("ms"), "price", "channel", "url", "extra")
    return bids.groupBy("bidder", "auction").agg(F.max_by(bid, "at").alias("bid")).select("bidder", "auction", "bid.*")


def q21(bids: "DataFrame") -> "DataFrame":
    return bids.where(NAMED).select("auction", "bidder", "price", "channel", F.expr(CHANNEL_ID).alias("channel_id"))


def q22(bids: "DataFrame") -> "DataFrame":
    parts = [F.expr(f"get(split(url, '/'), {number + 2})").alias(f"dir{number}") for number in (1, 2, 3)]
    return bids.select("auction", "bidder", "price", "channel", *parts)


ASKED: Final[Mapping[str, "Callable[[DataFrame], DataFrame]"]] = {
    "q0": q0, "q1": q1, "q2": q2, "q5": q5, "q7": q7, "q11": q11, "q12": q12, "q14": q14, "q15": q15, "q16": q16,
    "q17": q17, "q18": q18, "q21": q21, "q22": q22,
}  # fmt: skip
"""All but q19: Spark has no streaming top ten per key."""


def _timed(bids: "DataFrame") -> "DataFrame":
    return bids.withWatermark("at", f"{DELAY} seconds")


def answer(spark: "SparkSession", query: str, folder: str) -> "DataFrame":
    """Run a query over a log."""
    return ASKED[query](stream(spark, folder, columns=COLUMNS).where(f"kind = {BID}"))


def mode_of(query: str) -> str:
    """Return the Spark output mode."""
    return "update" if QUERIES[query].speaks is Speaks.CHANGES else "append"


def as_rows(frame: "DataFrame", batch: int) -> "DataFrame":
    """Convert its output to the form the check reads."""
    if "window" in frame.columns:
        bounds = [F.col(f"window.{name}").alias(f"window_{name}") for name in ("start", "end")]
        frame = frame.select(*(name for name in frame.columns if name != "window"), *bounds)
    return frame.withColumn("batch", F.lit(batch))
