"""Render the page's section on other stream shapes: table, cells, method."""

from typing import Any, Final

from benchmarks.corpus import AGAIN
from benchmarks.render_tables import cells, short, source, table
from benchmarks.workloads import Distinct, Everything

_HOW: Final = f"""\
**How it is measured.** *Late events*: windows of 20 s by 100,000 keys as above, over a corpus in which three events in
ten are 10 s to a minute late instead of one in a hundred; ours emits refused events, native Spark drops them. With a
pane per change, windows accept late events for a minute more and retract earlier panes. *Deduplication*: {AGAIN:.0%} of
the events repeat an earlier one, up to a second later; none is late, 400,000 per batch. Ours is a window of
{Distinct().seconds} s per event that fires with the first (`after_count(1)`); copies are emitted as late and counted;
some million events are known at a time. Native is `dropDuplicates`, which forgets with the watermark and so keeps about
half as many. *Keys without windows*: a sum and a count by 100,000 keys over all time, emitted with each batch that
changes them. Ours forgets a key {Everything().forgotten // 60} minutes after its last event, by the clock; native Spark
cannot and keeps all; the hand-written peer is transformWithStateInPandas with a time to live, over every 50th key. All
else, the check too, is as with windows; of repeated output, the last row must be right.

Nexmark's q18 and q19 cover the last version of an event and the ten highest of a key.
"""


def shapes(told: dict[str, Any]) -> str:
    """Render the section."""
    parts = [
        "## Other shapes: late events, deduplication, keys without windows\n",
        source(told, "shapes.json"),
        table([*told["rows"], *told["reported"]]),
        short(told["rows"], "### Where the goal of other shapes is not reached\n"),
        cells(told["cells"], "answers checked"),
        _HOW,
    ]
    return "\n".join(parts)
