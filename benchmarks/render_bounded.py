"""Render the page's section on bounded input: table, cells, method."""

from typing import Any, Final

from benchmarks.render_tables import cells, short, source, table

_HOW: Final = """\
**How it is measured.** Ten million events of the same seeded corpus, none late, so that all contestants have the same
result: sum and count by 100,000 keys in windows of 20 s. `at-once`: a bounded folder as one batch. `stream`: the same
pipeline over the same files, two per batch. `plain`: `spark.read`, `groupBy` and `agg`. Output goes to a no-op sink;
ours first sends it to the driver. The whole run counts, after 30 seconds of the same in the same JVM. Polars and DuckDB
group the same files for five seconds and do nothing else; the distance to them is reported without a floor. All else,
the check too, is as with windows.
"""


def bounded(told: dict[str, Any]) -> str:
    """Render the section."""
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
