"""What a definition goes on with: state by another one, made to fit, or made anew by a function, or refused.

Jobs are carried by hand here; what Spark does with it is on the journey of `test_savepoints`.
"""

import shutil
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import strandline as sl
from strandline.checkpoint.job_folder import Identity
from strandline.errors import SavepointError
from strandline.execution.block_addresses import place
from strandline.kernel.blocks.block import END, START
from strandline.kernel.state_export import export, with_group_numbers
from strandline.plan.compile import to_stages
from strandline.plan.nodes import to_plain
from strandline.plan.pipeline import Panes, Pipeline, read
from strandline.plan.upgrade.state_upgrade import compare
from strandline.savepoints.files import Draft, Manifest, Savepoint, load, verify
from strandline.savepoints.restore import Migrate, blocks_of, require_way, states_of
from tests.plan.endpoints import NoRunner, PaperSink, PaperSource
from tests.spark.by_hand import Carrier, MapState

KEPT = Path(__file__).parent / "kept"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = 60_000
SPOKEN = sl.after_watermark(early=sl.repeatedly(sl.after_count(1)), late=sl.after_count(1))


def panes(
    *,
    kind: str = "long",
    window: Any = None,
    keys: tuple[str, ...] = ("team",),
    trigger: Any = SPOKEN,
    lateness: int = 10,
    **aggregates: Any,
) -> Panes:
    source = PaperSource("typed", ("",), f"team {'string' if kind != 'int' else kind}, score long, at timestamp", None)
    return (
        read(source, NoRunner())
        .event_time("at", sl.bounded(seconds=10))
        .key_by(*keys)
        .window(window or sl.tumbling(minutes=1))
        .trigger(trigger)
        .accumulate(sl.accumulating)
        .allow_lateness(minutes=lateness)
        .aggregate(**(aggregates or {"total": sl.sum("score"), "kinds": sl.count_distinct("score")}))
    )


def pipeline(**said: Any) -> Pipeline:
    return panes(**said).write(PaperSink())


def came(*given: tuple[str, int, int]) -> pl.DataFrame:
    """Rows with a team, a score and a second."""
    rows = [(team, score, EPOCH + timedelta(seconds=at)) for team, score, at in given]
    return pl.DataFrame(
        rows, schema={"team": pl.String, "score": pl.Int64, "at": pl.Datetime("us", "UTC")}, orient="row"
    )


def told(carrier: Carrier, rows: pl.DataFrame, clock: int) -> dict[tuple[str, int], tuple[Any, ...]]:
    """What one batch says, by team and minute."""
    found = carrier.carry_frames({0: [rows]}, clock)[0].panes
    if found is None:
        return {}
    values = [name for name in found.columns if not name.startswith("@") and name != "team"]
    return {(row["team"], row[START] // MINUTE): tuple(row[name] for name in values) for row in found.to_dicts()}


def save(carrier: Carrier, asked: Pipeline, folder: Path) -> Savepoint:
    """As `create` would, of a job that Spark does not carry."""
    draft, steps, by_step = Draft(folder), [], dict[int, list[Mapping[str, bytes]]]()
    for to, state in sorted(carrier.groups.items(), key=lambda each: place(each[0])):
        by_step.setdefault(place(to)[0], []).append(state.held)
    for number, groups in by_step.items():
        moved, keys = export(groups), carrier.stages.by_number[number].keys
        frames = {name: with_group_numbers(frame, keys, carrier.stages.groups) for name, frame in moved.frames.items()}
        steps.append(draft.step(number, keys, moved, frames))
    identity = Identity("print", "line", "", to_plain(asked.root), carrier.stages.groups)
    made = Manifest(
        id="kept", created="2024-05-01T12:00:00+00:00", version="0.1.0", batch=1, clock=0, watermark=0,
        identity=identity, positions=("-", "-"), digest="", ends="", partitions=2, steps=tuple(steps), sinks=(),
        files={},
    )  # fmt: skip
    return draft.finish(made)


def go_on(saved: Savepoint, asked: Pipeline, groups: int = 7, migrate: Migrate | None = None) -> Carrier:
    """As `restore` would."""
    stages = to_stages(asked.root, groups)
    upgrade = compare(saved.manifest.identity.definition, to_plain(asked.root))
    require_way(upgrade, migrate)
    found = blocks_of(stages, states_of(asked.root, stages, saved, upgrade, migrate))
    held = {to: MapState() for to in found}
    for to, state in held.items():
        state.held |= found[to]
    return Carrier(stages, held, combines=False)


@pytest.fixture
def saved(tmp_path: Path) -> Savepoint:
    """Two minutes open, one of them with a pane that was told on time."""
    asked = pipeline()
    carrier = Carrier(to_stages(asked.root))
    told(carrier, came(("red", 1, 5), ("blue", 2, 6), ("red", 4, 65)), 1)
    told(carrier, came(("red", 8, 75)), 2)
    return save(carrier, asked, tmp_path / "saved")


MORE = came(("red", 16, 20), ("red", 32, 66), ("grey", 64, 70))


def test_the_same_definition_goes_on_in_other_key_groups(saved: Savepoint) -> None:
    assert told(go_on(saved, pipeline()), MORE, 3) == {
        ("red", 0): (17, 2), ("red", 1): (44, 3), ("grey", 1): (64, 1)
    }  # fmt: skip


def test_an_added_aggregate_begins_with_nothing_in_windows_that_are_open_and_a_removed_one_is_forgotten(
    saved: Savepoint,
) -> None:
    asked = pipeline(total=sl.sum("score"), best=sl.max("score"), n=sl.count(), spread=sl.variance("score"))
    assert told(go_on(saved, asked), MORE, 3) == {
        ("red", 0): (17, 16, 1, None), ("red", 1): (44, 32, 1, None), ("grey", 1): (64, 64, 1, None)
    }  # fmt: skip
    kept = export(state.held for state in go_on(saved, asked).groups.values()).frames
    assert [*kept] == ["windows"]
    assert not any("kinds" in name for name in kept["windows"].columns)


def test_a_new_trigger_begins_anew_and_the_end_is_not_told_twice(saved: Savepoint) -> None:
    asked = pipeline(trigger=sl.after_watermark(late=sl.after_count(2)))
    carrier = go_on(saved, asked)
    assert told(carrier, came(("red", 16, 20)), 3) == {}
    assert told(carrier, came(("red", 32, 21)), 4) == {("red", 0): (49, 3)}
    assert told(carrier, came(("red", 64, 140)), 5) == {("red", 1): (12, 2)}


def test_windows_live_by_the_new_lateness(saved: Savepoint) -> None:
    shorter = go_on(saved, pipeline(lateness=1))
    told(shorter, came(("red", 1, 200)), 3)
    assert told(shorter, came(("red", 16, 20)), 4) == {}
    longer = go_on(saved, pipeline(lateness=99))
    told(longer, came(("red", 1, 3_000)), 3)
    assert told(longer, came(("red", 16, 20)), 4) == {("red", 0): (17, 2)}


def test_a_new_step_begins_with_nothing_beside_one_that_goes_on(saved: Savepoint) -> None:
    per_team = panes()
    counts = panes(n=sl.count())
    both = sl.together(counts.write(PaperSink("counts")), per_team.write(PaperSink()))
    carrier = go_on(saved, both)
    first, second = carrier.carry_frames({0: [MORE]}, 3)
    assert first.panes is not None
    assert second.panes is not None
    assert sorted(first.panes["n"]) == [1, 1, 1]
    assert sorted(second.panes["total"]) == [17, 44, 64]


def test_other_windows_are_made_by_a_function_of_the_user(saved: Savepoint) -> None:
    asked = pipeline(window=sl.tumbling(minutes=5))
    with pytest.raises(SavepointError, match="is migratable") as refused:
        go_on(saved, asked)
    assert "open windows have other bounds" in refused.value.detail
    assert "migrate=" in refused.value.hint

    def migrate(step: int, frames: dict[str, pl.DataFrame]) -> Mapping[str, pl.DataFrame]:
        assert step == 0
        five = [pl.lit(0).alias(START), pl.lit(5 * MINUTE).alias(END)]
        first = pl.exclude("team", "@total", "@kinds", START, END).first()
        merged = [pl.col("@total").sum(), pl.col("@kinds").explode().unique(), first]
        return {"windows": frames["windows"].group_by("team").agg(merged).with_columns(five)}

    assert told(go_on(saved, asked, migrate=migrate), came(("red", 16, 20)), 3) == {("red", 0): (29, 4)}


def test_a_function_that_gives_too_little_is_told_what_is_missing(saved: Savepoint) -> None:
    asked = pipeline(window=sl.tumbling(minutes=5))
    with pytest.raises(SavepointError, match="cannot go on with this state") as refused:
        go_on(saved, asked, migrate=lambda _, frames: {"windows": frames["windows"].drop("@added")})
    assert refused.value.detail == "windows have no column @added"
    with pytest.raises(SavepointError, match="migrate raised for step 0") as refused:
        go_on(saved, asked, migrate=lambda _, frames: {"windows": frames["nothing"]})
    assert refused.value.detail == "KeyError: 'nothing'"
    with pytest.raises(SavepointError, match="gave no frame for windows"):
        go_on(saved, asked, migrate=lambda _, __: {"windows": None})  # type: ignore[dict-item]


def test_keys_that_do_not_fit_their_new_type_are_refused(saved: Savepoint) -> None:
    with pytest.raises(SavepointError, match="do not fit their new type"):
        go_on(saved, pipeline(kind="int"))


def test_a_savepoint_of_the_first_format_still_restores(tmp_path: Path) -> None:
    shutil.copytree(KEPT / "savepoint-1", tmp_path / "savepoint-1")
    found = load(tmp_path / "savepoint-1")
    verify(found)
    assert asdict(found.manifest)["version"] == "0.1.0"
    assert told(go_on(found, pipeline()), MORE, 3) == {
        ("red", 0): (17, 2), ("red", 1): (44, 3), ("grey", 1): (64, 1)
    }  # fmt: skip
