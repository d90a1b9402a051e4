"""Run the query in Quix Streams over a real Kafka: tumbling windows that close by partition time; at least once."""

import uuid
from typing import Any

from quixstreams import Application

from benchmarks.peers.programs.told import Heard, read_order


def main() -> None:
    order = read_order()
    heard = Heard(order)
    app = Application(
        broker_address=order.servers,
        consumer_group=f"totals-{uuid.uuid4().hex}",
        auto_offset_reset="earliest",
        state_dir=str(order.home / "state"),
        loglevel="WARNING",
    )
    # The time of a record is that of its event.
    topic = app.topic(order.events, value_deserializer="json", key_deserializer="str")
    frame = app.dataframe(topic)
    totals = frame.tumbling_window(duration_ms=order.length, grace_ms=order.delay).reduce(
        reducer=lambda held, event: {"total": held["total"] + event["value"], "plays": held["plays"] + 1},
        initializer=lambda event: {"total": event["value"], "plays": 1},
    )

    def hear(window: dict[str, Any], key: Any, timestamp: int, headers: Any) -> None:  # noqa: ARG001
        value = window["value"]
        heard.hear(int(key), window["start"], value["total"], value["plays"])
        if heard.plays == order.count:
            app.stop()

    totals.final(closing_strategy="partition").update(hear, metadata=True)
    app.run(timeout=60.0)
    heard.tell()


if __name__ == "__main__":
    main()
