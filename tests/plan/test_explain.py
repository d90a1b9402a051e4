"""The text of `explain`."""

import strandline as sl
from strandline.plan.explain import explain
from tests.plan.endpoints import PaperSink, scores, totals


def test_the_whole_pipeline_in_seven_lines() -> None:
    trigger = 'after_watermark(early=after_processing_time("30s"), late=after_count(1))'
    assert explain(totals().root).splitlines() == [
        "scan      scores, event time from 'at'",
        "prepare   in Python, per partition: decode, tumbling(2m), pre-aggregate by team",
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


def test_settings_that_are_often_unintended_give_a_caution() -> None:
    panes = scores().event_time("at", sl.monotone()).key_by("team").window(sl.tumbling(minutes=1))
    closing = panes.trigger(sl.after_watermark()).aggregate(plays=sl.count()).write(PaperSink())
    (caution,) = [line for line in explain(closing.root).splitlines() if line.startswith("caution")]
    assert "after_watermark() finishes" in caution
    assert "late output as closed" in caution


def test_several_keys_and_values_are_listed() -> None:
    panes = scores().event_time("at", sl.monotone()).key_by("team", "user").window(sl.tumbling(minutes=1))
    text = explain(panes.aggregate(total=sl.sum("score"), plays=sl.count()).write(PaperSink()).root)
    assert "pre-aggregate by team, user" in text
    assert "keeps total, plays per key and window until 0s after the window's end" in text


def test_the_sink_of_late_elements_is_named() -> None:
    late = PaperSink("late")
    timed = scores().event_time("at", sl.monotone())
    windows = timed.key_by("team").window(sl.tumbling(minutes=1)).allow_lateness("1m", rest=late)
    assert "late elements go to late" in explain(windows.aggregate(plays=sl.count()).write(PaperSink()).root)
    assert "late elements go to late" in explain(
        timed.deduplicate(by="user", within="10m", late=late).write(PaperSink()).root
    )
    assert "late elements" not in explain(totals().root)


def test_deduplication_states_how_long_keys_are_kept() -> None:
    timed = scores().event_time("at", sl.monotone())
    first = timed.deduplicate(by="user", within="10m", allowed_lateness="1h").write(PaperSink())
    kept = "keeps keys and times until the watermark is 10m past their time, plus 1h of allowed lateness"
    assert kept in explain(first.root)
    last = timed.deduplicate(by="user", keep="last", within="10m").write(PaperSink())
    assert explain(last.root).splitlines()[-2].endswith("until the watermark is 10m past their time")
