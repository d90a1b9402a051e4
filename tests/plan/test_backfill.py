"""Backfill plans: each side of the cut reads its own source, and pipelines without an event time are refused."""

import pytest

import strandline as sl
from strandline.errors import InvalidStep
from strandline.plan.backfill import backfilled
from strandline.plan.compile import to_stages
from tests.plan.endpoints import PaperSink, PaperSource, scores, totals

HISTORY = PaperSource("history", ("",))
TOPIC = PaperSource()
OTHER = PaperSource("other")
CUT = 1_714_564_800_000


def test_a_cut_in_event_time_gives_each_source_one_side() -> None:
    stages = to_stages(backfilled(totals().root, HISTORY, TOPIC, CUT))
    spans = {scan.source.name: [(flow.start, flow.end) for flow in scan.flows] for scan in stages.scans}
    assert spans == {"history": [(None, CUT)], "scores": [(CUT, None)]}
    assert len(stages.steps[0].inputs) == 2
    text = sl.Pipeline(backfilled(totals().root, HISTORY, TOPIC, CUT), totals().runner).explain()
    assert "event time from 'at'; only before 2024-05-01T12:00:00" in text
    assert "event time from 'at'; only from 2024-05-01T12:00:00" in text


def test_a_cut_at_offsets_reads_all_of_both_sources() -> None:
    stages = to_stages(backfilled(totals().root, HISTORY, TOPIC, None))
    assert [scan.source.name for scan in stages.scans] == ["history", "scores"]
    assert {(flow.start, flow.end) for scan in stages.scans for flow in scan.flows} == {(None, None)}
    passed = scores().where("score > 3").write(PaperSink())
    both = sl.together(passed, totals())
    assert len(to_stages(backfilled(both.root, HISTORY, TOPIC, None)).scans) == 2


def test_other_sources_of_a_pipeline_do_not_change() -> None:
    one, other = (each.event_time("at", sl.bounded(seconds=1)) for each in (scores(), scores(OTHER)))
    panes = sl.union(one, other).key_by("team").window(sl.tumbling(hours=1)).aggregate(total=sl.sum("score"))
    stages = to_stages(backfilled(panes.write(PaperSink()).root, HISTORY, TOPIC, CUT))
    assert [scan.source.name for scan in stages.scans] == ["history", "scores", "other"]
    assert [flow.start for flow in stages.scans[2].flows] == [None]


def test_pipelines_without_an_event_time_cannot_be_cut() -> None:
    with pytest.raises(InvalidStep, match="needs elements with an event time"):
        backfilled(scores().write(PaperSink()).root, HISTORY, TOPIC, CUT)
    clocked = scores().processing_time().key_by("team").window(sl.tumbling(hours=1)).aggregate(total=sl.sum("score"))
    with pytest.raises(InvalidStep, match="cannot be cut at an event time"):
        backfilled(clocked.write(PaperSink()).root, HISTORY, TOPIC, CUT)
    united = sl.union(scores(), scores(OTHER)).event_time("at", sl.bounded(seconds=1)).key_by("team")
    with pytest.raises(InvalidStep, match="only some of its streams have a history"):
        backfilled(united.aggregate(total=sl.sum("score")).write(PaperSink()).root, HISTORY, TOPIC, CUT)
