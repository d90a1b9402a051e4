"""Record each payment once, although producers send some of them again.

received   every payment as it arrived, copies included
payments   the first of each id within ten minutes of event time; payments_late holds those that came too late to tell

    python examples/deduplicate.py
"""

import sqlite3
from datetime import UTC, datetime

import strandline as sl

arriving = sl.generator(
    seed=7,
    events=4_000,
    start=datetime(2026, 5, 1, tzinfo=UTC),  # in the past, so that all of them are there at once
    duplicates=0.1,  # one in ten repeats one of the 64 before it
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
        (rows, ids), once, late = (
            shop.execute(query).fetchone()
            for query in (
                "SELECT count(*), count(DISTINCT id) FROM received",
                "SELECT count(*), count(DISTINCT id) FROM payments",
                "SELECT count(*) FROM payments_late",
            )
        )
    print(f"{rows} payments arrived, {once[0]} were recorded, {rows - once[0]} are copies, {late[0]} came too late")
    if once != (ids, ids) or late != (0,) or rows == ids:
        raise SystemExit(f"{ids} payments were sent, and {once[0]} rows with {once[1]} ids are recorded")
