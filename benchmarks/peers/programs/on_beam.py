"""Run the query in Beam (Python): text, timestamps, fixed windows, a combiner per key; bounded, so nothing is late.

Uses the Python runner in one process, unless another one is named.
"""

import json
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.runner import PipelineRunner
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from benchmarks.peers.programs.told import FLUSH_KEY, Heard, read_order


def parsed(line: str) -> Any:
    """Parse an event with its time."""
    event = json.loads(line)
    return TimestampedValue((event["key"], event["value"]), event["ms"] / 1000)


class Totals(beam.CombineFn):  # type: ignore[misc]
    """A sum and a count."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add_input(self, held: tuple[int, int], value: int) -> tuple[int, int]:
        return held[0] + value, held[1] + 1

    def merge_accumulators(self, all_: Any) -> tuple[int, int]:
        totals, plays = zip(*all_, strict=True)
        return sum(totals), sum(plays)

    def extract_output(self, held: tuple[int, int]) -> tuple[int, int]:
        return held


def lined(item: Any, window: Any = beam.DoFn.WindowParam) -> Iterator[str]:
    """Format a window of a key as a line."""
    key, (total, plays) = item
    if key != FLUSH_KEY:
        start, end = int(window.start) * 1000, int(window.end) * 1000
        yield json.dumps({"key": key, "start_ms": start, "end_ms": end, "total": total, "plays": plays})


def main(runner: PipelineRunner, options: PipelineOptions) -> None:
    order = read_order()
    with beam.Pipeline(runner=runner, options=options) as pipeline:
        (
            pipeline
            | beam.io.ReadFromText(order.events)
            | beam.Map(parsed)
            | beam.WindowInto(FixedWindows(order.length / 1000))
            | beam.CombinePerKey(Totals())
            | beam.FlatMap(lined)
            | beam.io.WriteToText(str(order.panes / "beam"))
        )
    heard = Heard(order)
    for path in order.panes.glob("beam*"):
        for line in path.read_text().splitlines():
            pane = json.loads(line)
            heard.hear(pane["key"], pane["start_ms"], pane["total"], pane["plays"])
        path.unlink()
    heard.tell()


if __name__ == "__main__":
    main(FnApiRunner(), PipelineOptions([]))
