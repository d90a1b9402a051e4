"""The stages in words: what is explained is what runs."""

import strandline as sl
from strandline.plan.explain import explain
from tests.plan.endpoints import PaperSink, scores, totals


def test_the_whole_pipeline_in_seven_lines() -> None:
    trigger = 'after_watermark(early=after_processing_time("30s"), late=after_count(1))'
    assert explain(totals().root).splitlines() == [
        "scan      scores, event time from 'at'",
        "prepare   in Python, per partition: decode, tumbling(2m), combine by team",
        "          one block for each key group crosses the shuffle",
        f"keyed     in Python, per key group: {trigger}, retracting",
        "          watermark bounded(10s), partitions idle after 1m",
        "          keeps total per key and window until 5m after the window's end",
        "deliver   to paper, exactly once",
    ]


def test_without_a_bound_windows_are_kept_to_the_end_of_the_stream() -> None:
    panes = scores().event_time("at", sl.monotone()).key_by("team").keep_for_ever().aggregate(plays=sl.count())
    text = explain(panes.write(PaperSink()).root)
    assert "caution   a global window completes only when the stream ends" in text


def test_what_may_not_be_meant_is_told_as_a_caution() -> None:
    panes = scores().event_time("at", sl.monotone()).key_by("team").window(sl.tumbling(minutes=1))
    closing = panes.trigger(sl.after_watermark()).aggregate(plays=sl.count()).write(PaperSink())
    (caution,) = [line for line in explain(closing.root).splitlines() if line.startswith("caution")]
    assert "after_watermark() finishes" in caution
    assert "late output as closed" in caution


def test_several_keys_and_values_are_listed() -> None:
    panes = scores().event_time("at", sl.monotone()).key_by("team", "user").window(sl.tumbling(minutes=1))
    text = explain(panes.aggregate(total=sl.sum("score"), plays=sl.count()).write(PaperSink()).root)
    assert "combine by team, user" in text
    assert "keeps total, plays per key and window until 0s after the window's end" in text
