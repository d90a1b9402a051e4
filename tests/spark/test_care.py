"""Checkpoints that were damaged: what is found, what is mended, and that the job then goes on as if nothing was."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from strandline.checkpoint.examine import examine, require_sound
from strandline.checkpoint.hadoop_checksums import beside
from strandline.checkpoint.repair import repair
from strandline.errors import CheckpointDamaged
from tests.spark.damaged import (
    FILES,
    HOW,
    STANDINGS,
    Made,
    at_rest,
    empty,
    flipped,
    half,
    missing,
    panes_of,
    places,
    torn_unsummed,
    totals_of,
    unseen,
)

pytestmark = pytest.mark.spark

HARMLESS = {"notes", "copies", "old range"}
OF_STATE = {"state", "earlier state", "snapshot", "table of the snapshot"}


def injections(made: Made, standing: Callable[[Made], None]) -> list[tuple[str, Callable[[Path], None]]]:
    made.put_back()
    standing(made)
    ways = HOW if standing is at_rest else HOW[:3]
    return [(name, how) for name, _ in places(made, standing) for how in ways]


def inject(made: Made, standing: Callable[[Made], None], name: str, how: Callable[[Path], None]) -> Path:
    made.put_back()
    standing(made)
    path = dict(places(made, standing))[name]
    how(path)
    return path


def differing(made: Made) -> list[str]:
    """Files that are not what they were, of those that are there; our own notes and copies aside."""
    ours = ("notes.json", "copies.jsonl", "spark.log")
    found = (path for path in made.job.rglob("*") if path.is_file() and path.name not in ours)
    return [
        str(path.relative_to(made.job))
        for path in found
        if path.read_bytes() != (made.kept / path.relative_to(made.job)).read_bytes()
    ]


def test_a_whole_checkpoint_is_sound_wherever_its_job_was_killed(made: Made) -> None:
    for standing in STANDINGS:
        made.put_back()
        standing(made)
        assert examine(made.job).findings == ()
        require_sound(made.job)


def test_most_damage_is_mended_and_what_is_left_is_what_it_was(made: Made) -> None:
    outcomes: Counter[str] = Counter()
    stopped: set[tuple[str, str]] = set()
    for standing in STANDINGS:
        for name, how in injections(made, standing):
            case = f"{standing.__name__}: {name} {how.__name__}"
            path = inject(made, standing, name, how)
            found = examine(made.job)
            told = {each.path for each in found.findings}
            assert how is missing or told & named(made, path), case
            assert found.goes_on or name not in HARMLESS, case
            if not found.goes_on:
                refuse_start(made, deep_only=how is flipped and name in OF_STATE)
            mended = repair(made.job)
            if mended.left.goes_on:
                assert differing(made) == [], case
                assert lacking(made) <= may_lack(made, standing, path), case
            else:
                stopped.add((standing.__name__, name))
                assert any(each.is_lasting and each.means for each in mended.left.findings), case
            outcomes["goes on" if mended.left.goes_on else "stops"] += 1
            assert (mended.beside is None) == (mended.done == ()), case
    # Nothing else can be proved: changes that later ones build on, and the state before a batch that sinks may hold.
    assert stopped == {(each.__name__, "earlier state") for each in STANDINGS} | {("delivered", "state")}
    assert outcomes["goes on"] / outcomes.total() >= 0.8, outcomes


def named(made: Made, path: Path) -> set[str]:
    """How a finding may name a file: a table by the snapshot that needs it."""
    snapshot = path.parent.parent / "1.zip" if path.parent.name == "SSTs" else path
    return {str(each.relative_to(made.job)) for each in (path, snapshot)}


def lacking(made: Made) -> set[str]:
    """Files that were there and are not, checksums aside."""
    names = [{str(path.relative_to(each)) for path in each.rglob("[!.]*") if path.is_file()}
             for each in (made.kept, made.job)]  # fmt: skip
    return names[0] - names[1]


def may_lack(made: Made, standing: Callable[[Made], None], path: Path) -> set[str]:
    """What a job can go on without: what was damaged itself, and what is planned or committed again."""
    again = {f"spark/commits/{made.last}"}
    if standing is unseen:
        again |= {f"spark/commits/{made.last - 1}", f"spark/offsets/{made.last}"}
    return again | named(made, path)


def refuse_start(made: Made, *, deep_only: bool) -> None:
    """A start names the file; a changed byte of state is left to Spark, which reads all of them."""
    if deep_only:
        return
    with pytest.raises(CheckpointDamaged, match=r"is (torn|empty|missing)") as refused:
        require_sound(made.job)
    assert refused.value.hint == f"strandline checkpoint check {made.job}"


def test_a_start_is_refused_before_anything_changes(made: Made, spark: SparkSession) -> None:
    half(made.put_back() / "spark" / "offsets" / str(made.last))
    before = {path: path.read_bytes() for path in made.job.rglob("*") if path.is_file()}
    with pytest.raises(CheckpointDamaged, match=f"spark/offsets/{made.last} is torn"):
        made.run(spark)
    assert {path: path.read_bytes() for path in made.job.rglob("*") if path.is_file()} == before


def go_on(made: Made, spark: SparkSession, table: int) -> None:
    """Mended, the job takes one more file; its totals are right, and every pane is there once."""
    made.put_table_back(table)
    made.feed(FILES)
    try:
        assert repair(made.job).left.goes_on
        made.run(spark)
        assert made.totals() == totals_of(range(FILES + 1))
        assert made.panes() == panes_of(range(FILES + 1))
        assert examine(made.job).goes_on
    finally:
        (made.root / "in" / f"{FILES}.json").unlink()


def test_a_job_goes_on_after_its_logs_were_torn(made: Made, spark: SparkSession) -> None:
    made.put_back()
    logs = dict(places(made, at_rest))
    missing(logs["query id"])
    empty(logs["range"])
    half(logs["range before"])
    torn_unsummed(logs["commit"])
    flipped(logs["list"])
    half(logs["identity"])
    half(logs["snapshot"])
    (made.job / "spark" / "offsets" / ".9.0f.tmp").write_text("v1")
    go_on(made, spark, made.last)


def test_a_job_goes_on_after_the_state_of_its_last_batch_was_torn(made: Made, spark: SparkSession) -> None:
    made.put_back()
    state = dict(places(made, at_rest))
    half(state["state"])
    empty(state["schema"])
    missing(state["description"])
    missing(state["table of the snapshot"])
    go_on(made, spark, made.last)


def test_a_job_plans_anew_what_no_sink_has_seen(made: Made, spark: SparkSession) -> None:
    made.put_back()
    unseen(made)
    logs = dict(places(made, unseen))
    torn_unsummed(logs["range"])
    torn_unsummed(logs["list"])
    torn_unsummed(logs["state"])
    go_on(made, spark, made.last - 1)


def test_a_changed_byte_of_state_stops_the_job_and_names_the_way_out(made: Made, spark: SparkSession) -> None:
    made.put_back()
    state = dict(places(made, at_rest))["state"]
    flipped(state)
    beside(state).unlink()
    made.put_table_back(made.last)
    made.feed(FILES)
    with pytest.raises(CheckpointDamaged) as refused:
        made.run(spark)
    assert refused.value.hint == f"strandline checkpoint check {made.job}"
