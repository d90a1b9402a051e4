"""What a keyed step inherits from its input, and what `explain` warns about on the way to a table."""

from collections.abc import Callable

import polars as pl
import pytest

import strandline as sl
from strandline.model.elements import ZERO, duration
from strandline.model.panes import Accumulation
from strandline.plan.compile import to_stages
from strandline.plan.explain import explain
from strandline.plan.nodes import KeyedNode
from strandline.plan.pipeline import Keyed, Panes, Pipeline
from tests.plan.endpoints import PaperSink, scores

REFINED = sl.after_watermark(early=sl.after_count(1), late=sl.after_count(1))
TABLE = sl.sqlite("scores.db", table="totals")
UPSERT = sl.sqlite("scores.db", table="totals", mode="upsert")
TEAMS = sl.sqlite("scores.db", table="teams", key=["team"])


def timed() -> sl.Elements:
    return scores().event_time("at", sl.bounded(seconds=10))


def keyed() -> Keyed:
    return timed().key_by("team").window(sl.tumbling(minutes=1)).trigger(REFINED).allow_lateness("5m")


def totals(step: Keyed | None = None) -> Panes:
    return (step or keyed()).aggregate(total=sl.sum("score"), plays=sl.count())


def retracting() -> Panes:
    return totals(keyed().accumulate(sl.retracting))


def again(panes: sl.Panes, key: str = "window_start") -> Keyed:
    return panes.key_by(key).window(sl.tumbling(minutes=1))


def best(step: Keyed) -> Panes:
    return step.aggregate(most=sl.max("total"))


def cautions(pipeline: Pipeline) -> list[str]:
    return list(to_stages(pipeline.root).cautions)


def settings(panes: Panes) -> tuple[Accumulation, object]:
    node = panes.root
    assert isinstance(node, KeyedNode)
    step: object = node.operator
    return step.accumulation, step.lateness.allowed  # type: ignore[attr-defined]


def test_a_step_over_retracting_panes_retracts_and_allows_the_same_lateness() -> None:
    inherited = settings(best(again(retracting())))
    assert inherited == (Accumulation.RETRACTING, duration("5m"))
    third = best(again(best(again(retracting())).with_columns(total=pl.col("most"))))
    assert settings(third) == inherited
    assert cautions(third.write(UPSERT)) == []


def test_what_the_author_says_stays() -> None:
    chosen = again(retracting()).accumulate(sl.accumulating).allow_lateness("10m")
    assert settings(best(chosen)) == (Accumulation.ACCUMULATING, duration("10m"))
    assert settings(best(again(totals(keyed().allow_lateness("0s"))))) == (Accumulation.DISCARDING, ZERO)


def test_a_step_over_a_deduplication_that_retracts_retracts() -> None:
    last = timed().deduplicate(by="user", keep="last", within="10m", allowed_lateness="1m")
    after = totals(last.key_by("team").window(sl.tumbling(minutes=1)))
    assert settings(after) == (Accumulation.RETRACTING, duration("1m"))


SAID: dict[str, tuple[Callable[[], Pipeline], str, Callable[[], Pipeline]]] = {
    "corrections that the next step refuses": (
        lambda: best(again(retracting()).allow_lateness("1m")).write(TABLE),
        'later ones go to the late output and are not in its results; call allow_lateness("5m")',
        lambda: best(again(retracting())).write(TABLE),
    ),
    "corrections of sessions": (
        lambda: best(again(totals(keyed().window(sl.session(seconds=5)).accumulate(sl.retracting)), "team")).write(
            UPSERT
        ),
        "may be any time behind the watermark",
        lambda: best(again(retracting(), "team")).write(UPSERT),
    ),
    "retractions of a deduplication": (
        lambda: totals(
            timed().deduplicate(by="user", keep="last", within="10m").key_by("team").window(sl.tumbling(minutes=1))
        ).write(UPSERT),
        "may be 10m behind the watermark",
        lambda: totals(timed().deduplicate(by="user", within="10m").key_by("team").window(sl.tumbling("1m"))).write(
            UPSERT
        ),
    ),
    "rows of a deduplication that leave their window": (
        lambda: totals(
            timed().deduplicate(by="user", keep="last", within="10m").key_by("user").window(sl.tumbling("1m"))
        ).write(TABLE),
        "may leave a key and window of total, plays by user by a change of the time of a row",
        lambda: totals(timed().deduplicate(by="user", within="10m").key_by("user").window(sl.tumbling("1m"))).write(
            TABLE
        ),
    ),
    "a maximum of parts": (
        lambda: best(again(totals())).write(TABLE),
        "total, plays by team are parts of results, and most by window_start takes each as a whole: most would be",
        lambda: best(again(retracting())).write(TABLE),
    ),
    "a count of parts": (
        lambda: again(totals()).accumulate(sl.retracting).aggregate(teams=sl.count()).write(UPSERT),
        "teams would be wrong",
        lambda: again(totals()).accumulate(sl.retracting).aggregate(sum=sl.sum("plays")).write(UPSERT),
    ),
    "a filter of parts": (
        lambda: (
            again(totals().where(pl.col("total") > 9))
            .accumulate(sl.retracting)
            .aggregate(s=sl.sum("plays"))
            .write(UPSERT)
        ),
        "would be wrong",
        lambda: (
            again(totals().where(pl.col("team") != "x"))
            .accumulate(sl.retracting)
            .aggregate(s=sl.sum("plays"))
            .write(UPSERT)
        ),
    ),
    "keys that change with corrections": (
        lambda: again(retracting(), "plays").aggregate(teams=sl.count()).write(UPSERT),
        "may leave a key and window of teams by plays by a change of plays",
        lambda: again(retracting(), "team").aggregate(teams=sl.count()).write(UPSERT),
    ),
    "a view of parts": (
        lambda: totals().write(TABLE),
        "parts of results, so the view totals_now does not exist",
        lambda: retracting().write(TABLE),
    ),
    "parts in a folder": (
        lambda: totals().write(sl.folder("out/")),
        "parts of results, so read_manifested(…, now=True) does not exist",
        lambda: totals().write(sl.console(), delivery="at_least_once"),
    ),
    "parts of sessions": (
        lambda: totals(keyed().window(sl.session(seconds=5))).write(TABLE),
        "are parts of sessions, each under the bounds that its session had",
        lambda: totals(keyed().window(sl.session(seconds=5)).accumulate(sl.retracting)).write(TABLE),
    ),
    "keys that share a row": (
        lambda: totals(timed().key_by("team", "user").window(sl.tumbling("1m"))).write(TEAMS),
        "with different user overwrite each other in sqlite('teams'): its key is team",
        lambda: totals(timed().key_by("team").window(sl.tumbling("1m"))).write(TEAMS),
    ),
    "a stale row behind a filter": (
        lambda: totals(keyed().accumulate(sl.accumulating)).where(pl.col("total") < 9).write(UPSERT),
        "stays in sqlite('totals') although a later pane replaces it, if where [(col(\"total\")) < (dyn int: 9)]",
        lambda: retracting().where(pl.col("total") < 9).write(UPSERT),
    ),
    "a stale row under an old value": (
        lambda: totals(keyed().accumulate(sl.accumulating)).write(
            sl.sqlite("scores.db", key=["team", "window_start", "plays"])
        ),
        "if it has another plays",
        lambda: retracting().write(sl.sqlite("scores.db", key=["team", "window_start", "plays"])),
    ),
    "the latest window, filtered": (
        lambda: retracting().where(pl.col("total") < 9).write(TEAMS),
        "sqlite('teams') has no row for the key, although an earlier window has one",
        lambda: retracting().where(pl.col("team") != "x").write(TEAMS),
    ),
    "a key with a time to live": (
        lambda: totals(timed().key_by("team").window(sl.everything()).time_to_live("1h")).write(UPSERT),
        "forgets a key after 1h of processing time",
        lambda: totals(timed().key_by("team").window(sl.everything()).keep_for_ever()).write(UPSERT),
    ),
    "a first element that returns": (
        lambda: timed().deduplicate(by="user", within="10m").write(UPSERT),
        "forgets a key after 10m of event time",
        lambda: timed().deduplicate(by="user", forever=True).write(UPSERT),
    ),
    "growing windows by their start": (
        lambda: totals(timed().key_by("team").window(sl.cumulating("1h", step="10m"))).write(
            sl.sqlite("scores.db", key=["team", "window_start"])
        ),
        "has only window_start",
        lambda: totals(timed().key_by("team").window(sl.sliding("1h", every="10m"))).write(
            sl.sqlite("scores.db", key=["team", "window_start"])
        ),
    ),
    "panes that are chosen": (
        lambda: retracting().where(pl.col("timing") == "on_time").write(UPSERT),
        "chooses panes of total, plays by team",
        lambda: retracting().write(UPSERT),
    ),
    "rows of a function": (
        lambda: retracting().map(lambda frame: frame, "team string, total long").write(UPSERT),
        "a function makes the rows of sqlite('totals')",
        lambda: retracting().select("team", "total").write(UPSERT),
    ),
    "several streams": (
        lambda: sl.union(
            timed().deduplicate(by="user", keep="last", forever=True), timed().where(pl.col("score") > 1)
        ).write(sl.sqlite("scores.db", key=["user"])),
        "rows of several streams",
        lambda: timed().deduplicate(by="user", keep="last", forever=True).write(sl.sqlite("scores.db", key=["user"])),
    ),
}


@pytest.mark.parametrize("case", SAID.values(), ids=SAID.keys())
def test_explain_warns_and_after_a_small_change_it_does_not(
    case: tuple[Callable[[], Pipeline], str, Callable[[], Pipeline]],
) -> None:
    wrong, said, right = case
    assert any(said in caution for caution in cautions(wrong())), cautions(wrong())
    assert f"caution   {cautions(wrong())[0]}" in explain(wrong().root)
    assert cautions(right()) == []


def test_explain_says_which_rows_a_table_keeps() -> None:
    assert "          one row for each team: that of its latest window" in explain(retracting().write(TEAMS).root)
    elements = timed().write(sl.sqlite("scores.db", key=["user"]))
    assert "          one row for each user: the last that arrived" in explain(elements.root)
    assert "one row for each" not in explain(retracting().write(UPSERT).root)


def test_salted_steps_do_not_warn_about_their_own_halves() -> None:
    salted = timed().key_by("team").window(sl.tumbling(minutes=1)).allow_lateness("1m").hot_keys()
    panes = salted.accumulate(sl.retracting).aggregate(all=sl.collect("score"))
    assert len(to_stages(panes.write(PaperSink()).root).steps) == 2
    assert cautions(panes.write(UPSERT)) == []


def test_a_view_of_the_latest_rows_is_made_only_where_they_are_results() -> None:
    assert not to_stages(totals().write(TABLE).root).outputs[0].has_latest_view
    assert to_stages(retracting().write(TABLE).root).outputs[0].has_latest_view
    assert to_stages(timed().write(TABLE).root).outputs[0].has_latest_view
