"""Join orders with the shipments of the same five minutes, and alert on orders that were not shipped in time.

shipped   every order, with each of its shipments; without one if there is none at the end of the window
missing   orders without a shipment in their window; a shipment that arrives late removes its order again

    python examples/orders_with_shipments.py
"""

import sqlite3
from datetime import UTC, datetime

import strandline as sl

START = datetime(2026, 5, 1, tzinfo=UTC)  # in the past, so that all events are there at once


def events(seed: int, rate: int, late: float = 0.0) -> sl.Elements:
    """Return events of a thousand customers, some out of order, some minutes late."""
    source = sl.generator(
        seed=seed, events=3_000, rate=rate, keys=1_000, start=START, disorder=0.2, late=late, late_by="4m",
        events_per_batch=500,
    )  # fmt: skip
    return sl.read(source).event_time("at", sl.bounded(seconds=10))


orders, shipments = events(1, 4), events(2, 4, late=0.1)
window = sl.tumbling("5m")
both = orders.join(shipments).on("key")
shipped = both.window(window, how="left", suffix="_shipment", late=sl.sqlite("shop.db", table="too_late"))
missing = both.window(window, how="anti", accumulate="retracting", allowed_lateness="1h")

pipeline = sl.together(
    shipped.write(sl.sqlite("shop.db", table="shipped")),
    missing.write(sl.sqlite("shop.db", table="missing", key=["id"])),
    orders.write(sl.sqlite("shop.db", table="orders")),
    shipments.write(sl.sqlite("shop.db", table="shipments")),
)

RECOMPUTED = """
SELECT id FROM orders AS o WHERE NOT EXISTS (
    SELECT * FROM shipments AS s WHERE s.key = o.key AND strftime('%s', s.at) / 300 = strftime('%s', o.at) / 300
) ORDER BY id
"""

if __name__ == "__main__":
    job = pipeline.run(checkpoint="shop.checkpoint")
    job.await_end()
    with sqlite3.connect("shop.db") as shop:
        alerts = shop.execute("SELECT id FROM missing ORDER BY id").fetchall()
        expected = shop.execute(RECOMPUTED).fetchall()
        (sent,) = shop.execute("SELECT count(*) FROM orders").fetchone()
        (seen,) = shop.execute("SELECT count(DISTINCT id) FROM shipped").fetchone()
        (alone,) = shop.execute("SELECT count(*) FROM shipped WHERE id_shipment IS NULL").fetchone()
        (late,) = shop.execute("SELECT count(*) FROM too_late").fetchone()
    print(f"{sent} orders, {alone} without a shipment at the end of their window, {len(alerts)} of them for good")
    print(f"{late} shipments arrived after the end of their window")
    if alerts != expected or seen != sent or not late or alone <= len(alerts):
        raise SystemExit(f"{len(expected)} missing shipments and {sent} orders were expected")
