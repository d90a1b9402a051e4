"""Replay plans: sources are rewound, the sink is another one, and every window is complete."""

import pytest

import strandline as sl
from strandline.errors import InvalidStep
from strandline.plan.compile import to_stages
from strandline.plan.replay import only_output, replayed
from tests.plan.endpoints import PaperSink, PaperSource, scores, totals

REWOUND = PaperSource("again")
OTHER = PaperSink("other")


def test_the_same_steps_over_the_log_go_to_another_sink() -> None:
    stages = to_stages(replayed(only_output(totals().root), lambda _: REWOUND, OTHER, 60_000))
    assert [scan.source.name for scan in stages.scans] == ["again"]
    assert [flow.start for flow in stages.scans[0].flows] == [60_000]
    assert stages.outputs[0].sink.name == "other"
    whole = to_stages(replayed(only_output(totals().root), lambda _: REWOUND, OTHER, None))
    assert [flow.start for flow in whole.scans[0].flows] == [None]


def test_windows_without_fixed_bounds_and_steps_over_panes_replay_from_the_beginning_only() -> None:
    timed = scores().event_time("at", sl.bounded(seconds=1)).key_by("team")
    sessions = timed.window(sl.session("5s")).aggregate(total=sl.sum("score"))
    hours = timed.window(sl.tumbling(hours=1)).aggregate(total=sl.sum("score"))
    days = hours.key_by("team").window(sl.tumbling(days=1)).aggregate(best=sl.max("total"))
    for panes, message in ((sessions, "without fixed bounds"), (days, "a step over panes")):
        write = only_output(panes.write(PaperSink()).root)
        with pytest.raises(InvalidStep, match=message):
            replayed(write, lambda _: REWOUND, OTHER, 60_000)
        assert replayed(write, lambda _: REWOUND, OTHER, None).sink == OTHER


def test_one_output_of_panes_by_event_time_can_be_replayed() -> None:
    both = sl.together(totals(), totals(sink=PaperSink("second")))
    clocked = scores().processing_time().key_by("team").window(sl.tumbling(hours=1)).aggregate(total=sl.sum("score"))
    for pipeline, message in (
        (both, "with one output"),
        (scores().write(PaperSink()), "no panes"),
        (clocked.write(PaperSink()), "processing time"),
    ):
        with pytest.raises(InvalidStep, match=message):
            only_output(pipeline.root)
