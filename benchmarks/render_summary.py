"""Render the summary of the performance page: per benchmark, how many rows reach their goal, floor or neither."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from benchmarks.render_latency import Aim, aimed
from benchmarks.render_tables import bound
from benchmarks.results import shown

SECTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "windows": ("Windows", "windows"),
    "of_shapes": ("Other shapes", "other-shapes-late-events-deduplication-keys-without-windows"),
    "of_dedupe": ("Deduplication", "deduplication"),
    "of_joins": ("Joins", "joins"),
    "of_sources": ("Sources", "sources-from-kafkas-records-to-windows"),
    "of_delivery": ("Delivery", "delivery-exactly-once-and-upserts"),
    "of_bounded": ("Bounded input", "bounded-input-history-as-one-batch"),
    "of_nexmark": ("Nexmark", "nexmark-people-auctions-bids"),
    "of_peers": ("Peers", "peers-the-same-windows-in-other-systems"),
    "of_scale": ("Scale", "scale-cost-per-event-by-keys-windows-partitions-and-cores"),
    "of_latency": ("Latency", "latency-of-panes-by-setting"),
}
"""Benchmarks with floors in page order: title and anchor of the section."""

_HEAD: Final = """\
Floors and goals were set before the measurement: a floor must hold, a goal is the target. One changed since ([the
two-core floor](../decisions/0043-scale-floor-relative-to-plain-polars.md)). The machines are small, shared and vary in
speed, so ratios are taken within one run. Each section names its machine, date and command.
"""


def at_a_glance(told: dict[str, dict[str, Any]]) -> str:
    """Return one line per benchmark, and a list of all rows that are below their floor or have no number."""
    lines = ["| | measured | goal reached | above the floor | below the floor |", "|---|---|---|---|---|"]
    missed: list[str] = []
    for name, (title, anchor) in SECTIONS.items():
        if name not in told:
            continue
        stands, below = _standing(told[name])
        missed += [f"- {title}: {each}" for each in below]
        counts = (stands.total(), *(stands[each] for each in ("goal", "floor", "below")))
        lines.append(f"| [{title}](#{anchor}) | " + " | ".join(map(str, counts)) + " |")
    said = ["Below the floor, or without a number:\n", *missed, ""] if missed else ["Nothing is below its floor.\n"]
    return "\n".join(["## At a glance\n", _HEAD, *lines, "", *said])


def _standing(told: dict[str, Any]) -> tuple[Counter[str], list[str]]:
    """Count rows with a floor by standing, and describe those that miss it."""
    found, below = Counter[str](), list[str]()
    for row in told.get("rows", ()):
        stands = "failed" if row["failure"] else row["reached"]
        if stands in ("not measured", "reported"):
            continue
        found[stands] += 1
        if stands in ("below", "failed"):
            value = "no number" if row["failure"] else shown(row["ratio"], row["unit"])
            below.append(f"{row['against']}: {value}, asked for {bound(row)}")
    aims = aimed(told.get("rungs", []))
    found.update(aim.reached for aim in aims)
    return found, [*below, *(_missed(aim) for aim in aims if aim.reached == "below")]


def _missed(aim: Aim) -> str:
    beside = "" if aim.native is None else f"; native Spark beside it: {aim.shown(aim.native)}"
    return f"early panes, {aim.title}: {aim.shown(aim.value)}, asked for ≤ {aim.shown(aim.floor)}{beside}"
