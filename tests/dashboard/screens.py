"""The pages with their headings, and the pictures of the docs, taken of invented jobs."""

from typing import Final

PAGES: Final = {
    "overview": "Events a second",
    "time": "Event time and processing time",
    "panes": "Panes of a key",
    "lateness": "How late elements are",
    "partitions": "Partitions",
    "keys": "Hot keys",
    "stages": "Plan",
    "state": "State by step",
    "letters": "Dead letters",
    "savepoints": "Savepoints",
    "lineage": "Runs",
    "events": "Events",
}
