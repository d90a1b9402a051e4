"""Convert orders with the exchange rate that was valid at the time of each order, and correct them for late rates.

priced   every order with its rate; a rate that arrives late retracts the orders that it changes and prices them again

    python examples/currency_at_order_time.py
"""

import sqlite3
from datetime import UTC, datetime

import strandline as sl

START = datetime(2026, 5, 1, tzinfo=UTC)  # in the past, so that all events are there at once


def events(seed: int, rate: int, events: int) -> sl.Elements:
    """Return events of twenty currencies, some out of order."""
    source = sl.generator(
        seed=seed, events=events, rate=rate, keys=20, start=START, disorder=0.2, events_per_batch=events // 4
    )
    return sl.read(source).event_time("at", sl.bounded(seconds=5))


orders, rates = events(1, 10, 3_000), events(2, 2, 600)
priced = orders.as_of(rates, how="left", corrections="10m", suffix="_rate").on("key")

pipeline = sl.together(
    priced.write(sl.sqlite("orders.db", table="priced")),
    orders.write(sl.sqlite("orders.db", table="orders")),
    rates.write(sl.sqlite("orders.db", table="rates")),
)

RECOMPUTED = """
SELECT o.id, (
    SELECT r.id FROM rates r WHERE r.key = o.key AND r.at <= o.at ORDER BY r.at DESC, r.id DESC LIMIT 1
) FROM orders o ORDER BY o.id
"""
NET = """
SELECT id, id_rate FROM priced GROUP BY id, id_rate
HAVING sum(CASE WHEN retraction THEN -1 ELSE 1 END) > 0 ORDER BY id
"""

if __name__ == "__main__":
    job = pipeline.run(checkpoint="orders.checkpoint")
    job.await_end()
    with sqlite3.connect("orders.db") as database:
        found = database.execute(NET).fetchall()
        expected = database.execute(RECOMPUTED).fetchall()
    without = sum(rate is None for _, rate in found)
    print(f"{len(found)} orders: {len(found) - without} with a rate, {without} before the first one")
    if not found or found != expected:
        raise SystemExit(f"{len(expected)} orders were expected; {len({*found} ^ {*expected})} rows differ")
