"""How rows go through a plan: stateless steps, branches, unions and outputs, by the job's own code alone."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

import strandline as sl
from strandline.execution.batch import Batch
from strandline.execution.gather_output import gather
from strandline.execution.prepare import prepare_scan
from strandline.kernel.output import Output
from strandline.kernel.stateless_steps import FAILED
from strandline.observe.number_format import conserved
from strandline.plan.compile import to_stages
from strandline.plan.pipeline import Elements, Panes, Pipeline, read
from strandline.ports.codecs import DETAIL, RAW, REASON
from tests.plan.endpoints import NoRunner, PaperSink, PaperSource
from tests.spark.by_hand import Carrier

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Typed(PaperSource):
    """A source whose columns Spark has read already."""

    name: str = "typed"
    partitions: tuple[str, ...] = ("",)
    columns: str = "team string, score long, at timestamp"
    decoder: str | None = None


def typed(name: str = "typed") -> Elements:
    return read(Typed(name), NoRunner())


def timed(name: str = "typed") -> Elements:
    return typed(name).event_time("at", sl.monotone())


def totals(elements: Elements) -> Panes:
    return elements.key_by("team").window(sl.tumbling(seconds=10)).aggregate(total=sl.sum("score"), n=sl.count())


def rows(*given: tuple[str | None, int | None, int | None]) -> pl.DataFrame:
    """Rows with a team, a score and a time in seconds."""
    told = [(team, score, None if at is None else EPOCH + timedelta(seconds=at)) for team, score, at in given]
    kinds: dict[str, Any] = {"team": pl.String, "score": pl.Int64, "at": pl.Datetime("us", "UTC")}
    return pl.DataFrame(told, schema=kinds, orient="row")


def run(pipeline: Pipeline, *batches: dict[int, pl.DataFrame]) -> list[Output]:
    """Each batch in turn, then the end: what every output holds of all of it, put together."""
    carrier = Carrier(to_stages(pipeline.root))
    told = [carrier.carry_frames({scan: [frame] for scan, frame in batch.items()}, 0) for batch in batches]
    told.append(carrier.carry_frames({}, 0, drain=True))
    return [_joined(outputs) for outputs in zip(*told, strict=True)]


def _joined(outputs: tuple[Output, ...]) -> Output:
    def both(name: str) -> pl.DataFrame | None:
        found = [getattr(each, name) for each in outputs if getattr(each, name) is not None]
        return pl.concat(found, how="diagonal_relaxed") if found else None

    counts = sum((each.counts for each in outputs[1:]), outputs[0].counts)
    return Output(both("panes"), both("late"), both("dead"), outputs[-1].progress, counts)


def told(output: Output, *columns: str) -> list[tuple[Any, ...]]:
    return [] if output.panes is None else sorted(output.panes.select(columns).rows(), key=str)


SOME = rows(("red", 5, 1), ("blue", 3, 2), ("red", 1, 3), ("blue", -2, 4), (None, 7, 5))


def test_a_filter_leaves_rows_out_and_counts_them() -> None:
    (output,) = run(totals(timed().where(pl.col("score") > 0)).write(PaperSink()), {0: SOME})
    assert told(output, "team", "total") == [("blue", 3), ("red", 6), (None, 7)]
    assert output.counts.read == 5
    assert (output.counts.contributed, output.counts.filtered) == (4, 1)


def test_null_is_a_key_like_any_other() -> None:
    (output,) = run(totals(timed()).write(PaperSink()), {0: SOME})
    assert output.panes is not None
    assert dict(output.panes.select("team", "total").rows()) == {None: 7, "blue": 1, "red": 6}


def test_what_a_filter_after_the_event_time_drops_still_moves_time_on() -> None:
    pipeline = totals(timed().where(pl.col("team") == "red")).write(PaperSink())
    carrier = Carrier(to_stages(pipeline.root))
    carrier.carry_frames({0: [rows(("red", 5, 1))]}, 0)
    (output,) = carrier.carry_frames({0: [rows(("blue", 1, 50))]}, 0)
    assert told(output, "team", "total") == [("red", 5)]


def test_columns_are_computed_and_selected() -> None:
    points = timed().with_columns(points=pl.col("score") * 10).select("team", "at", score=pl.col("points") + 1)
    (output,) = run(totals(points).write(PaperSink()), {0: rows(("red", 5, 1))})
    assert told(output, "team", "total") == [("red", 51)]


def test_a_function_over_batches_keeps_the_number_of_rows() -> None:
    def double(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(pl.col("score") * 2)

    mapped = timed().map(double, "team string, score long, at timestamp")
    (output,) = run(totals(mapped).write(PaperSink()), {0: rows(("red", 5, 1), ("red", 1, 2))})
    assert told(output, "team", "total") == [("red", 12)]


def test_rows_that_a_function_raises_on_are_dead_letters_and_the_others_live() -> None:
    def careful(frame: pl.DataFrame) -> pl.DataFrame:
        if (frame["score"] < 0).any():
            raise ValueError("a negative score")
        return frame

    mapped = timed().map(careful, "team string, score long, at timestamp")
    (output,) = run(totals(mapped).write(PaperSink()), {0: SOME})
    assert output.counts.contributed == 4
    assert output.dead is not None
    assert output.dead.select(REASON, DETAIL).rows() == [(FAILED, "ValueError: a negative score")]
    assert b'"score":-2' in output.dead[RAW][0]


def test_an_expression_that_fails_on_a_row_makes_it_a_dead_letter() -> None:
    parsed = timed().with_columns(score=pl.col("team").cast(pl.Int64))
    (output,) = run(totals(parsed).write(PaperSink()), {0: rows(("12", 0, 1), ("red", 0, 2), ("30", 0, 3))})
    assert told(output, "team", "total") == [("12", 12), ("30", 30)]
    assert output.counts.dead == 1


def test_a_function_that_gives_another_number_of_rows_is_told_so_in_the_dead_letters() -> None:
    mapped = timed().map(lambda frame: frame.head(0), "team string, score long, at timestamp")
    (output,) = run(totals(mapped).write(PaperSink()), {0: rows(("red", 5, 1))})
    assert output.dead is not None
    assert "returned a frame of 0 rows for 1 rows" in output.dead[DETAIL][0]


def test_a_function_that_drops_rows_makes_all_of_them_dead_letters_however_they_are_divided() -> None:
    mapped = timed().map(lambda frame: frame.filter(pl.col("score") > 1), "team string, score long, at timestamp")
    (output,) = run(totals(mapped).write(PaperSink()), {0: rows(("red", 5, 1), ("red", 0, 2), ("red", 7, 3))})
    assert output.counts.dead == 3
    assert output.dead is not None
    assert {
        "InvalidStep: the function returned a frame of 2 rows for 3 rows" in why for why in output.dead[DETAIL]
    } == {True}
    assert "use where or flat_map" in output.dead[DETAIL][0]


def test_flat_map_makes_none_one_or_many_of_a_row() -> None:
    def times(row: dict[str, Any]) -> list[dict[str, Any]]:
        if row["score"] < 0:
            raise ValueError("cannot be repeated so often")
        return [row] * row["score"]

    many = timed().flat_map(times, "team string, score long, at timestamp")
    (output,) = run(
        totals(many).write(PaperSink()), {0: rows(("red", 3, 1), ("red", 0, 2), ("blue", 1, 3), ("blue", -1, 4))}
    )
    assert told(output, "team", "n") == [("blue", 1), ("red", 3)]
    counts = output.counts
    assert (counts.read, counts.again) == (4, 2)
    assert (counts.contributed, counts.filtered, counts.dead) == (4, 1, 1)


def test_what_came_from_the_sources_is_counted_once_however_many_steps_there_are() -> None:
    first = totals(timed())
    later = first.key_by("team").window(sl.tumbling("1m")).aggregate(most=sl.max("total"))
    beside = timed().where(pl.col("score") > 0).key_by("score").window(sl.tumbling("10s")).aggregate(n=sl.count())
    pipeline = sl.together(*(each.write(PaperSink(str(place))) for place, each in enumerate((first, later, beside))))
    carrier = Carrier(to_stages(pipeline.root))
    outputs = [*carrier.carry_frames({0: [SOME[:2], SOME[2:]]}, 0), *carrier.carry_frames({}, 0, drain=True)]
    everyone = outputs[0].counts + outputs[-1].counts
    # Each of five once more to the step beside, and a pane for each of three keys to the step after.
    assert (everyone.read, everyone.again, everyone.missing) == (5, 8, 0)
    steps = {name: each.of_step for name, each in carrier.counts.items()}
    assert all(each.missing == 0 for each in steps.values())
    assert sorted((each.read, each.contributed, each.filtered) for each in steps.values()) == [
        (3, 3, 0), (5, 4, 1), (5, 5, 0),
    ]  # fmt: skip
    assert conserved(everyone) == "5 in + 8 to further steps = 12 contributed + 0 late + 0 dead letters + 1 filtered"


def test_every_row_goes_to_the_first_branch_that_takes_it_and_to_no_other() -> None:
    high, low, rest = timed().branch(pl.col("score") > 4, pl.col("score") > 0)
    pipeline = sl.together(*(totals(each).write(PaperSink(str(place))) for place, each in enumerate((high, low, rest))))
    outputs = run(pipeline, {0: rows(("red", 5, 1), ("red", 1, 2), ("red", -1, 3), ("red", None, 4))})
    assert [told(output, "team", "n") for output in outputs] == [[("red", 1)], [("red", 1)], [("red", 2)]]


def test_a_union_waits_for_the_slower_of_its_streams() -> None:
    pipeline = totals(sl.union(timed("one"), timed("other"))).write(PaperSink())
    carrier = Carrier(to_stages(pipeline.root))
    (first,) = carrier.carry_frames({0: [rows(("red", 1, 1), ("red", 0, 50))]}, 0)
    assert first.panes is None
    (second,) = carrier.carry_frames({1: [rows(("red", 2, 2), ("red", 0, 30))]}, 0)
    assert told(second, "team", "total") == [("red", 3)]
    assert second.progress.watermark == 30_000 - 1


def test_late_elements_go_to_a_sink_of_their_own() -> None:
    panes = timed().key_by("team").window(sl.tumbling(seconds=10)).allow_lateness("0s", late=PaperSink("late"))
    pipeline = panes.aggregate(total=sl.sum("score")).write(PaperSink())
    one, rest = run(pipeline, {0: rows(("red", 1, 50))}, {0: rows(("red", 2, 3))})
    assert one.late is None
    assert rest.late is not None
    assert rest.late["score"].to_list() == [2]
    assert told(one, "team", "total") == [("red", 1)]


def test_elements_are_written_as_they_are_where_there_is_no_keyed_step() -> None:
    pipeline = typed().where(pl.col("score") > 0).select("team", twice=pl.col("score") * 2).write(PaperSink())
    carrier = Carrier(to_stages(pipeline.root))
    stages = carrier.stages
    assert stages.steps == ()
    sent = prepare_scan(SOME, stages.scans[0], {}, None, Batch(0), 0)
    output = gather(block for _, block in sent)
    assert output.frames["out:0"].select("team", "twice").rows() == [("red", 10), ("blue", 6), ("red", 2), (None, 14)]
    assert output.total_counts.missing == 0


def test_an_element_without_a_time_is_a_dead_letter_with_its_columns() -> None:
    (output,) = run(totals(timed()).write(PaperSink()), {0: rows(("red", 5, None), ("red", 1, 2))})
    assert output.dead is not None
    assert output.dead[REASON].to_list() == ["no_event_time"]
    assert b'"team":"red"' in output.dead[RAW][0]
    assert told(output, "team", "total") == [("red", 1)]


def test_panes_can_be_filtered_and_computed_with_on_their_way_out() -> None:
    panes = totals(timed()).where(pl.col("total") > 4).with_columns(long=pl.col("window_end") - pl.col("window_start"))
    (output,) = run(panes.write(PaperSink()), {0: SOME})
    assert told(output, "team", "total") == [("red", 6), (None, 7)]
    assert output.panes is not None
    assert output.panes["long"].unique().to_list() == [timedelta(seconds=10)]


def test_a_key_with_the_name_of_a_pane_column_stays_on_the_way_out() -> None:
    """Else rows of several first windows in one second window have one key, and overwrite each other in a table."""
    first = timed().key_by("team").window(sl.tumbling(seconds=10)).aggregate(total=sl.sum("score"))
    second = first.key_by("window_start").window(sl.tumbling(seconds=20)).aggregate(all=sl.sum("total"))
    for panes in (second, second.where(pl.col("all") > 0), second.with_columns(twice=pl.col("all") * 2)):
        carrier = Carrier(to_stages(panes.write(PaperSink()).root))
        carrier.carry_frames({0: [rows(("red", 5, 1), ("red", 4, 12))]}, 0)
        (output,) = carrier.carry_frames({}, 0, drain=True)
        assert output.panes is not None
        starts = output.panes["window_start"].dt.epoch("s").to_list()
        assert sorted(zip(starts, output.panes["all"], strict=True)) == [(0, 5), (10, 4)]


def test_a_second_step_takes_back_what_the_first_one_does() -> None:
    first = (
        timed()
        .key_by("team")
        .window(sl.tumbling(seconds=10))
        .trigger(sl.after_watermark(early=sl.after_count(1), late=sl.after_count(1)))
        .accumulate(sl.retracting)
        .allow_lateness("1m")
        .aggregate(total=sl.sum("score"))
    )
    second = (
        first.key_by("window_start")
        .window(sl.tumbling(seconds=10))
        .accumulate(sl.discarding)
        .aggregate(all=sl.sum("total"), best=sl.max("total"))
    )
    pipeline = second.write(PaperSink())
    carrier = Carrier(to_stages(pipeline.root))
    said = []
    for batch in (rows(("red", 5, 1)), rows(("red", 4, 2), ("blue", 1, 3)), rows(("red", -8, 4))):
        (output,) = carrier.carry_frames({0: [batch]}, 0)
        said += told(output, "all", "best")
    # The second step discards, so each of its panes is a difference: their sum is the truth.
    assert sum(total for total, _ in said) == 2


def test_elements_of_a_key_that_a_users_aggregate_raises_on_are_dead_letters_and_other_keys_live() -> None:
    def add(kept: int, score: int) -> int:
        if score < 0:
            raise ValueError("below zero")
        return kept + score

    own = sl.UserAggregate("score", lambda: 0, add, lambda kept: kept, name="checked")
    panes = timed().key_by("team").window(sl.tumbling(seconds=10)).aggregate(total=own)
    (output,) = run(panes.write(PaperSink()), {0: rows(("red", 5, 1), ("blue", 3, 2), ("blue", -2, 4), ("red", 1, 5))})
    assert told(output, "team", "total") == [("red", 6)]
    assert output.dead is not None
    assert output.dead[DETAIL].to_list() == ["checked: ValueError: below zero"] * 2
    assert (output.counts.contributed, output.counts.dead) == (2, 2)


def test_a_pane_whose_value_a_users_aggregate_cannot_tell_has_null_and_a_dead_letter_says_why() -> None:
    def result(kept: int) -> float:
        return 1 / kept

    own = sl.UserAggregate("score", lambda: 0, lambda kept, score: kept + score, result, name="inverse")
    panes = timed().key_by("team").window(sl.tumbling(seconds=10)).aggregate(inverse=own, n=sl.count())
    (output,) = run(panes.write(PaperSink()), {0: rows(("red", 5, 1), ("blue", 0, 2))})
    assert told(output, "team", "inverse", "n") == [("blue", None, 1), ("red", 0.2, 1)]
    assert output.dead is not None
    assert output.dead[DETAIL].to_list() == ["ZeroDivisionError: division by zero"]


def test_nested_types_may_come_out_of_a_function() -> None:
    def tagged(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(tags=pl.concat_list("team"), Pair=pl.struct(Name="team"))

    shape = "team string, score long, at timestamp, tags array<string>, Pair struct<Name: string>"
    panes = timed().map(tagged, shape).key_by("team").window(sl.tumbling(seconds=10))
    pipeline = panes.aggregate(tags=sl.collect("tags"), pairs=sl.collect("Pair")).write(PaperSink())
    (output,) = run(pipeline, {0: rows(("red", 5, 1))})
    assert told(output, "tags", "pairs") == [([["red"]], [{"Name": "red"}])]
