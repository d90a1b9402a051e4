"""The head of the page of figures: who is below a floor is told first."""

import json
import re
from typing import Any

import pytest

from benchmarks.render import OTHERS, RESULTS, page
from benchmarks.render_summary import SECTIONS, at_a_glance


def row(name: str, ratio: float | None, reached: str, **more: Any) -> dict[str, Any]:
    told = {"against": name, "ratio": ratio, "floor": 1.5, "goal": 2.0, "unit": "x", "reached": reached}
    return {**told, "lower_is_better": False, "failure": "", **more}


def test_what_is_below_its_floor_is_told_before_anything_else() -> None:
    rows = [
        row("a peer", 3.0, "goal"),
        row("two cores against one", 1.2, "below"),
        row("keys", 2.5, "below", lower_is_better=True),
        row("another peer", None, "not measured", failure="it is not here"),
        row("whoever was not asked", None, "not measured"),
    ]
    said = at_a_glance({"of_scale": {"rows": rows}})
    assert "| [Scale](#scale-cost-per-event-by-keys-windows-partitions-and-cores) | 4 | 1 | 0 | 2 |" in said
    assert "- Scale: two cores against one: 1.20x, asked for 1.50x" in said
    assert "- Scale: keys: 2.50x, asked for ≤ 1.50x" in said
    assert "- Scale: another peer: no number, asked for 1.50x" in said
    assert "whoever" not in said


def test_the_aims_of_latency_are_among_them() -> None:
    rungs = [
        {"rung": "base", "early": {"p50": 400.0, "p99": 590.0}},
        {"rung": "native", "early": {"p50": 390.0, "p99": 600.0}},
    ]
    said = at_a_glance({"of_latency": {"rows": [], "rungs": rungs}})
    assert " | 4 | 2 | 1 | 1 |" in said
    assert "- Latency: early panes, p50: 400 ms, asked for ≤ 350 ms; native Spark beside it: 390 ms" in said


def test_where_all_holds_that_is_said() -> None:
    assert "Nothing is below its floor." in at_a_glance({"windows": {"rows": [row("a peer", 3.0, "goal")]}})


@pytest.mark.slow
def test_every_line_leads_to_its_part_of_the_page() -> None:
    kept = {name: RESULTS.with_name(file) for name, (file, _) in OTHERS.items()}
    told = {name: json.loads(file.read_text()) for name, file in kept.items() if file.exists()}
    made = page(json.loads(RESULTS.read_text()), **told)
    headings = re.findall(r"^#+ (.+)$", made, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    measured = {"windows", *told}
    assert {anchor for name, (_, anchor) in SECTIONS.items() if name in measured} <= anchors
