"""Keep a table of orders with their payment and their shipment, and one of orders that miss either.

overview   one row for each order, as it is now: amount, latest payment, latest shipment
waiting    orders without a payment or without a shipment, as a changelog

    python examples/orders_payments_shipments.py
"""

import sqlite3
from datetime import UTC, datetime

import polars as pl

import strandline as sl

START = datetime(2026, 5, 1, tzinfo=UTC)  # in the past, so that all events are there at once


def changes(seed: int, orders: int, value: str) -> sl.Elements:
    """Return the latest event of each order: a payment may be corrected, a parcel sent again."""
    source = sl.generator(seed=seed, events=1_500, rate=4, keys=orders, start=START, disorder=0.2, events_per_batch=300)
    events = sl.read(source).event_time("at", sl.bounded(seconds=10)).select("at", "key", **{value: "value"})
    return events.deduplicate(by="key", keep="last", forever=True)


orders = changes(1, 1_000, "amount")
payments = changes(2, 1_200, "paid")
shipments = changes(3, 1_400, "weight")

overview = sl.join_tables(
    orders, payments, shipments, how="left", forever=True, suffixes=["_payment", "_shipment"]
).on("key")  # fmt: skip
pipeline = sl.together(
    overview.write(sl.sqlite("shop.db", table="overview", mode="upsert")),
    overview.where(pl.col("paid").is_null() | pl.col("weight").is_null()).write(sl.sqlite("shop.db", table="waiting")),
    orders.write(sl.sqlite("shop.db", table="orders", mode="upsert")),
    payments.write(sl.sqlite("shop.db", table="payments", mode="upsert")),
    shipments.write(sl.sqlite("shop.db", table="shipments", mode="upsert")),
)

RECOMPUTED = """
SELECT o.key, o.amount, p.paid, s.weight FROM orders o LEFT JOIN payments p ON p.key = o.key
LEFT JOIN shipments s ON s.key = o.key ORDER BY o.key
"""
WAITING = "SELECT sum(CASE WHEN retraction THEN -1 ELSE 1 END) FROM waiting"

if __name__ == "__main__":
    job = pipeline.run(checkpoint="shop.checkpoint")
    job.await_end()
    with sqlite3.connect("shop.db") as shop:
        found = shop.execute("SELECT key, amount, paid, weight FROM overview ORDER BY key").fetchall()
        expected = shop.execute(RECOMPUTED).fetchall()
        (waiting,) = shop.execute(WAITING).fetchone()
    complete = sum(None not in row for row in found)
    print(f"{len(found)} orders: {complete} with payment and shipment, {waiting} wait for one")
    if found != expected or complete + waiting != len(found):
        raise SystemExit("the tables do not agree with the join of their inputs")
