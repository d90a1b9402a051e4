"""Enrich clicks with the profile of their user, and count them by the user's tier.

profiles  every click with the name and tier of its user; users without a profile have nulls
by_tier   clicks in windows of a minute by tier; clicks without a profile are left out

    python examples/enrich_profiles.py
"""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime

import strandline as sl

START = datetime(2026, 5, 1, tzinfo=UTC)  # in the past, so that all events are there at once
USERS, KNOWN = 200, 150

events = sl.generator(seed=3, events=2_000, rate=10, keys=USERS, start=START, disorder=0.2, events_per_batch=500)
clicks = sl.read(events).event_time("at", sl.bounded(seconds=10))
users = sl.lookup_sqlite("profiles.db", "key string, name string, tier string", table="users")

profiles = clicks.enrich(users, cache_for="10m", pin=True).on("key")
by_tier = (
    clicks.enrich(users, missing="drop", cache_for="10m", pin=True)
    .on("key")
    .key_by("tier")
    .window(sl.tumbling(minutes=1))
    .aggregate(clicks=sl.count())
)

pipeline = sl.together(
    profiles.write(sl.sqlite("clicks.db", table="profiles")), by_tier.write(sl.sqlite("clicks.db", table="by_tier"))
)


def make_profiles(keys: list[str]) -> None:
    """Write the table of users, as another program would."""
    rows = [(key, f"user {key}", "gold" if number % 5 == 0 else "plain") for number, key in enumerate(keys)]
    with closing(sqlite3.connect("profiles.db")) as shop, shop:
        shop.execute("CREATE TABLE users (key TEXT PRIMARY KEY, name TEXT, tier TEXT)")
        shop.executemany("INSERT INTO users VALUES (?, ?, ?)", rows)


if __name__ == "__main__":
    make_profiles([f"k{number}" for number in range(KNOWN)])
    job = pipeline.run(checkpoint="profiles.checkpoint")
    job.await_end()
    with closing(sqlite3.connect("clicks.db")) as out:
        (sent, known) = out.execute("SELECT count(*), count(tier) FROM profiles").fetchone()
        (counted,) = out.execute("SELECT sum(clicks) FROM by_tier").fetchone()
        (wrong,) = out.execute(
            "SELECT count(*) FROM profiles WHERE name IS NOT NULL AND name <> 'user ' || key"
        ).fetchone()
    print(f"{sent} clicks, {known} with a profile, {counted} counted by tier, {job.counts.unmatched} lookups unmatched")
    if not 0 < known < sent or counted != known or wrong or job.counts.unmatched != 2 * (sent - known):
        raise SystemExit("the clicks with a profile and those that were counted differ")
