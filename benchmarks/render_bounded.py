"""What the page of figures says of bounded input: the table, every cell, and how it was measured."""

from typing import Any, Final

from benchmarks.render_tables import cells, short, source, table

_HOW: Final = """\
**How it is measured.** Ten million events of the same seeded corpus, none of them late, so that all have the
same result: summed and counted by 100,000 keys in windows of 20 s. At once: a folder that ends, as one batch. The
stream: the same pipeline over the same files, two a batch. The batch job: `spark.read`, `groupBy` and `agg`. Output
goes to a sink that keeps nothing; ours brings it to the driver first. All of a run counts, from its start to its end,
after the same was done for 30 seconds in the same JVM. Polars and DuckDB group the same files,
over and over for five seconds, and do nothing else: how far from that we are, is told and not held to anything. All
else is as with windows, the judge too.
"""


def bounded(told: dict[str, Any]) -> str:
    """The part of the page that tells of bounded input."""
    parts = [
        "## Bounded input: history as one batch\n",
        source(told, "bounded.json"),
        table(told["rows"]),
        short(told["rows"], "### Where the goal of bounded input is not reached\n"),
        *([table(told["reported"])] if told["reported"] else []),
        cells(told["cells"], "windows checked"),
        _HOW,
    ]
    return "\n".join(parts)
