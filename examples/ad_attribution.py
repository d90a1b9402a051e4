"""Attribute clicks to the impressions that came up to five minutes before them, and find clicks without one.

attributed   every pair of a click and an impression of the same user
unexplained  clicks without an impression: bots, or a tracker that lost events

    python examples/ad_attribution.py
"""

import sqlite3
from datetime import UTC, datetime

import strandline as sl

START = datetime(2026, 5, 1, tzinfo=UTC)  # in the past, so that all events are there at once


def events(seed: int, rate: int) -> sl.Elements:
    """Return one event in twenty milliseconds or so, of a thousand users, some out of order."""
    source = sl.generator(
        seed=seed, events=3_000, rate=rate, keys=1_000, start=START, disorder=0.2, events_per_batch=500
    )
    return sl.read(source).event_time("at", sl.bounded(seconds=10))


impressions, clicks = events(1, 4), events(2, 4)
pairs = clicks.join(impressions).on("key").within(before="5m", suffix="_impression")
alone = clicks.join(impressions).on("key").within(before="5m", how="anti")

pipeline = sl.together(
    pairs.write(sl.sqlite("ads.db", table="attributed")),
    alone.write(sl.sqlite("ads.db", table="unexplained")),
    clicks.write(sl.sqlite("ads.db", table="clicks")),
    impressions.write(sl.sqlite("ads.db", table="impressions")),
)

RECOMPUTED = """
SELECT count(*) FROM clicks c JOIN impressions i ON i.key = c.key
WHERE round((julianday(c.at) - julianday(i.at)) * 86400, 3) BETWEEN 0 AND 300
"""

if __name__ == "__main__":
    job = pipeline.run(checkpoint="ads.checkpoint")
    job.await_end()
    with sqlite3.connect("ads.db") as ads:
        (found,) = ads.execute("SELECT count(*) FROM attributed").fetchone()
        (expected,) = ads.execute(RECOMPUTED).fetchone()
        (explained,) = ads.execute("SELECT count(DISTINCT id) FROM attributed").fetchone()
        (unexplained,) = ads.execute("SELECT count(*) FROM unexplained").fetchone()
        (sent,) = ads.execute("SELECT count(*) FROM clicks").fetchone()
    print(f"{sent} clicks: {explained} after an impression ({found} pairs), {unexplained} without one")
    if found != expected or explained + unexplained != sent:
        raise SystemExit(f"{expected} pairs were expected, and {sent - explained} clicks without an impression")
