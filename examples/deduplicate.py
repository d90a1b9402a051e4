"""Record each payment once, although producers send some of them again.

received   every payment as it arrived, copies included
payments   the first payment of each id within ten minutes of event time

    python examples/deduplicate.py
"""

import sqlite3
from datetime import UTC, datetime

import strandline as sl

arriving = sl.generator(
    seed=7,
    events=4_000,
    start=datetime(2026, 5, 1, tzinfo=UTC),  # in the past, so that all events are there at once
    duplicates=0.1,  # one record in ten repeats one of the 64 before it
    disorder=0.2,
    events_per_batch=1_000,
)
sent = sl.read(arriving).event_time("at", sl.bounded(seconds=10))

received = sent.write(sl.sqlite("shop.db", table="received"))
payments = sent.deduplicate(by="id", within="10m").write(sl.sqlite("shop.db", table="payments"))

if __name__ == "__main__":
    job = sl.together(received, payments).run(checkpoint="shop.checkpoint")
    job.await_end()
    with sqlite3.connect("shop.db") as shop:
        rows, ids = shop.execute("SELECT count(*), count(DISTINCT id) FROM received").fetchone()
        once = shop.execute("SELECT count(*), count(DISTINCT id) FROM payments").fetchone()
    print(f"{rows} records arrived, {once[0]} payments were recorded, {rows - once[0]} copies were dropped")
    print(job.counts)
    if once != (ids, ids) or rows == ids or job.counts.filtered != rows - ids:
        raise SystemExit(f"{ids} payments were sent, and {once[0]} rows with {once[1]} ids are recorded")
