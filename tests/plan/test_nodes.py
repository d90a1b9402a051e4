"""The nodes of a plan, and the fingerprint by which a checkpoint knows its pipeline."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import strandline as sl
from strandline.model.panes import Accumulation, Emit, Lateness, PaneTimestamp
from strandline.plan.nodes import EventTime, KeyedNode, Node, Read, Write, fingerprint, walk, with_inputs
from tests.plan.endpoints import PaperSink, PaperSource, totals


def test_a_walk_goes_from_the_source_to_the_sink() -> None:
    assert [type(node) for node in walk(totals().root)] == [Read, EventTime, KeyedNode, Write]


def test_equal_pipelines_have_one_fingerprint() -> None:
    assert fingerprint(totals().root) == fingerprint(totals().root)


def test_a_fingerprint_is_the_same_in_another_process() -> None:
    """There sets have another order, and functions have another address."""
    program = (
        "from tests.plan.test_nodes import with_functions; from strandline.plan.nodes import fingerprint; "
        "print(fingerprint(with_functions()))"
    )
    here = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", program], cwd=here, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == fingerprint(with_functions())


def with_functions() -> Node:
    longest = sl.UserAggregate("user", create=str, add=_longer, result=len, merge=_longer)
    return changed(step_aggregates=(("longest", longest),))


def _longer(one: str, other: str) -> str:
    return max(one, other, key=len)


def _always(node: Node) -> Callable[[Node], Node]:
    return lambda _: node


def changed(**parts: Any) -> Node:
    """Return the pipeline with one setting changed: `panes_keys=…`, `step_…=…`, and so on."""
    root = totals().root
    assert isinstance(root, Write)
    panes = root.of
    assert isinstance(panes, KeyedNode)
    (timed,) = panes.inputs
    assert isinstance(timed, EventTime)
    for name, value in parts.items():
        assert isinstance(panes, KeyedNode)
        where, _, field = name.partition("_")
        match where:
            case "step":
                panes = replace(panes, operator=replace(panes.operator, **{field: value}))
            case "panes" if field == "keys":
                panes = replace(panes, streams=(replace(panes.streams[0], keys=value),))
            case "panes":
                panes = replace(panes, **{field: value})
            case "time":
                panes = with_inputs(panes, _always(replace(timed, **{field: value})))
            case "source":
                source = Read(replace(PaperSource(), **{field: value}))
                panes = with_inputs(panes, _always(replace(timed, of=source)))
            case "sink":
                root = replace(root, sink=replace(PaperSink(), **{field: value}))
            case _:
                root = replace(root, **{field: value})
    return replace(root, of=panes)


CHANGES: list[dict[str, Any]] = [
    {"source_name": "other"},
    {"source_partitions": ("0",)},
    {"source_columns": "team string, score long, at timestamp"},
    {"time_column": "user"},
    {"time_watermark": sl.bounded(seconds=11).idle_after(minutes=1)},
    {"time_watermark": sl.bounded(seconds=10).idle_after(minutes=2)},
    {"time_watermark": sl.bounded(seconds=10)},
    {"time_watermark": sl.bounded(seconds=10).idle_after(minutes=1).future_bound(minutes=1)},
    {"time_watermark": sl.bounded(seconds=10).idle_after(minutes=1).returning("catch_up")},
    {"panes_keys": ("user",)},
    {"panes_keys": ("team", "user")},
    {"step_window": sl.tumbling(minutes=3)},
    {"step_window": sl.tumbling(minutes=2, offset="1s")},
    {"step_window": sl.sliding(minutes=2, every="2m")},
    {"step_trigger": sl.after_watermark(early=sl.every(seconds=31), late=sl.after_count(1))},
    {"step_trigger": sl.after_watermark(early=sl.every(seconds=30), late=sl.after_count(2))},
    {"step_trigger": sl.after_watermark(early=sl.every(seconds=30))},
    {"step_trigger": sl.after_watermark(late=sl.every(seconds=30), early=sl.after_count(1))},
    {"step_trigger": sl.when("total > 1")},
    {"step_trigger": sl.when("total > 2")},
    {"step_accumulation": Accumulation.DISCARDING},
    {"step_accumulation": Accumulation.ACCUMULATING},
    {"step_lateness": Lateness()},
    {"step_lateness": Lateness(None)},
    {"step_pane_timestamp": PaneTimestamp.EARLIEST},
    {"step_on_time_pane": Emit.IF_NON_EMPTY},
    {"step_final_pane": Emit.ALWAYS},
    {"step_aggregates": (("total", sl.sum("user")),)},
    {"step_aggregates": (("total", sl.max("score")),)},
    {"step_aggregates": (("sum", sl.sum("score")),)},
    {"step_aggregates": (("total", sl.sum("score")), ("plays", sl.count()))},
    {"sink_name": "other paper"},
    {"write_delivery": sl.Delivery.AT_LEAST_ONCE},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_any_other_setting_gives_another_fingerprint(change: dict[str, Any]) -> None:
    assert fingerprint(changed(**change)) != fingerprint(changed())


def test_all_changed_fingerprints_differ() -> None:
    assert len({fingerprint(changed(**change)) for change in CHANGES}) == len(CHANGES)
