"""Run the query in PyFlink's DataStream mini-cluster: text, event-time windows, an aggregate, text files.

Python runs in separate processes, or as a thread inside the JVM.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyflink.common import Configuration, Duration, Encoder, Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSink, FileSource, StreamFormat
from pyflink.datastream.functions import AggregateFunction, ProcessWindowFunction
from pyflink.datastream.window import TumblingEventTimeWindows

from benchmarks.peers.programs.told import Heard, read_order

_WHERE = "ran-in-"


class Happened(TimestampAssigner):  # type: ignore[misc]
    """Extract the event time."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:  # noqa: ARG002
        return int(value[2])


class Totals(AggregateFunction):  # type: ignore[misc]
    """A sum and a count."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: Any, held: tuple[int, int]) -> tuple[int, int]:
        return held[0] + value[1], held[1] + 1

    def get_result(self, held: tuple[int, int]) -> tuple[int, int]:
        return held

    def merge(self, one: tuple[int, int], two: tuple[int, int]) -> tuple[int, int]:
        return one[0] + two[0], one[1] + two[1]


class Named(ProcessWindowFunction):  # type: ignore[misc]
    """Format a window of a key as a line, with the execution mode: Flink may ignore the requested one."""

    def __init__(self, home: Path) -> None:
        self._home = str(home)

    def open(self, runtime_context: Any) -> None:  # noqa: ARG002 - Flink's signature
        where = Path("/proc/self/exe").readlink().name
        (Path(self._home) / f"{_WHERE}{uuid4()}").write_text(where)

    def process(self, key: int, context: Any, elements: Iterable[tuple[int, int]]) -> Iterable[str]:
        for total, plays in elements:
            yield f"{key},{context.window().start},{total},{plays}"


def ran_in(home: Path) -> set[str]:
    """Return the execution modes that were used."""
    found = {path.read_text() for path in home.glob(f"{_WHERE}*")}
    return {"thread" if where.startswith("java") else "process" for where in found}


def parsed(line: str) -> tuple[int, int, int]:
    """An event."""
    event = json.loads(line)
    return event["key"], event["value"], event["ms"]


def main(mode: str = "process") -> None:
    order = read_order()
    settings = Configuration()
    settings.set_string("python.execution-mode", mode)
    settings.set_string("execution.checkpointing.interval", "1s")
    settings.set_string("state.backend.type", "rocksdb")
    # With checkpoints Flink restarts a failing job for ever without reporting the cause.
    settings.set_string("restart-strategy.type", "none")
    settings.set_string("python.executable", sys.executable)
    # By default workers cache a thousand states and ask the JVM for each other one, per event.
    for name in ("python.state.cache-size", "python.map-state.read-cache-size", "python.map-state.write-cache-size"):
        settings.set_string(name, "100000")
    environment = StreamExecutionEnvironment.get_execution_environment(settings)
    environment.set_parallelism(2)
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), order.events).build()
    watermarks = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(order.delay))
    accumulated = Types.TUPLE([Types.LONG(), Types.LONG()])
    (
        # One reader, so that lines stay in order.
        environment.from_source(source, WatermarkStrategy.no_watermarks(), "lines").set_parallelism(1)
        .map(parsed, Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])).set_parallelism(1)
        .assign_timestamps_and_watermarks(watermarks.with_timestamp_assigner(Happened())).set_parallelism(1)
        .key_by(lambda event: event[0], Types.LONG())
        .window(TumblingEventTimeWindows.of(Time.milliseconds(order.length)))
        .aggregate(Totals(), Named(order.home), accumulated, Types.STRING())
        .sink_to(FileSink.for_row_format(f"{order.panes}/flink", Encoder.simple_string_encoder()).build())
    )  # fmt: skip
    environment.execute("totals")
    if ran_in(order.home) != {mode}:
        raise RuntimeError(f"it was to run as {mode}, and ran as {ran_in(order.home)}")
    heard = Heard(order)
    for path in sorted((order.panes / "flink").rglob("*")):
        if path.is_file() and not path.name.startswith("."):
            for line in path.read_text().splitlines():
                key, start, total, plays = map(int, line.split(","))
                heard.hear(key, start, total, plays)
    heard.tell()


if __name__ == "__main__":
    main()
