"""The head of the page of figures: of every benchmark, what is held to a floor, what holds it, and who does not."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from benchmarks.render_latency import Aim, aimed
from benchmarks.render_tables import bound
from benchmarks.results import shown

SECTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "windows": ("Windows", "windows"),
    "of_shapes": ("Other shapes", "other-shapes-a-storm-each-event-once-keys-without-windows"),
    "of_dedupe": ("Deduplication", "deduplication"),
    "of_sources": ("Sources", "sources-from-kafkas-records-to-windows"),
    "of_delivery": ("Delivery", "delivery-exactly-once-and-upserts"),
    "of_bounded": ("Bounded input", "bounded-input-history-as-one-batch"),
    "of_nexmark": ("Nexmark", "nexmark-people-auctions-bids"),
    "of_peers": ("Peers", "peers-one-question-many-systems"),
    "of_scale": ("Scale", "scale-what-an-event-costs-as-things-grow"),
    "of_latency": ("Latency", "latency-how-soon-a-pane-is-seen-setting-by-setting"),
}
"""What has floors, in the order of the page: the title, and the anchor of its part."""

_HEAD: Final = """\
What was to be reached was written down before it was measured: a floor that must hold, and a goal (one was changed
since: [what a second core is asked for](../decisions/0043-what-a-second-core-gives.md)). The machines that this was
measured on are small, shared, and change their speed, so ratios are taken within one run; each part tells its own
machine, date and command.
"""


def at_a_glance(told: dict[str, dict[str, Any]]) -> str:
    """A line for each benchmark, and all that is below its floor or has no number."""
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
    """Where all that has a floor stands, and in words what does not hold it."""
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
