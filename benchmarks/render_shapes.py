"""What the page of figures says of other shapes of streams: the table, every cell, and how it was measured."""

from typing import Any, Final

from benchmarks.corpus import AGAIN
from benchmarks.render_tables import cells, short, source, table
from benchmarks.workloads import Distinct, Everything

_HOW: Final = f"""\
**How it is measured.** *A storm*: windows of 20 s by 100,000 keys as above, over a corpus in which three events in ten
are 10 s to a minute late, not one in a hundred; ours hands those out that no window takes, native Spark drops them.
With a pane for every change windows take them for a minute more, and take back what they said before. *Each event
once*: {AGAIN:.0%} of the events are an earlier one once more, up to a second later, nobody is late, 400,000 a batch.
Ours is a window of {Distinct().seconds} s for every event that speaks with the first (`after_count(1)`); copies are
told apart as late, and counted; some million events are known at a time. Native is `dropDuplicates`, which forgets
with the watermark, and so knows about half as many. *Without windows*: a sum and a count by
100,000 keys over all time, told with every batch that changes them. Ours forgets a key
{Everything().forgotten // 60} minutes after its last event, by the clock; native Spark cannot, and keeps all; by hand
it is transformWithStateInPandas with a time to live, over every 50th key. All else is as with windows, the judge too:
of what is told with every change, the last must be right.

The last version of an event and the ten highest of a key are Nexmark's q18 and q19.
"""


def shapes(told: dict[str, Any]) -> str:
    """The part of the page that tells of them."""
    parts = [
        "## Other shapes: a storm, each event once, keys without windows\n",
        source(told, "shapes.json"),
        table([*told["rows"], *told["reported"]]),
        short(told["rows"], "### Where the goal of other shapes is not reached\n"),
        cells(told["cells"], "answers checked"),
        _HOW,
    ]
    return "\n".join(parts)
