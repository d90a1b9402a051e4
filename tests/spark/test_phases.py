"""The phases of a backfill, without Spark: what a folder says of them, and what a savepoint does."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import strandline as sl
from strandline.checkpoint.job_folder import BACKFILL
from strandline.errors import CheckpointMismatch, SavepointError
from strandline.spark.backfill import Backfill, Phase, Plan, keep, plan_at, plan_in, require_same

CUT = datetime(2024, 5, 1, tzinfo=UTC)
COLUMNS = "team string, score long, at timestamp"
BEGUN = Plan(Phase.LIVE, {"plays": {"0": 3}}, ["a.json"], CUT.isoformat())


def asked(at: Any = CUT) -> Backfill:
    history = sl.files("plays/", sl.json(COLUMNS))
    return Backfill(history, sl.kafka("plays", servers="localhost:9092", value=sl.json(COLUMNS)), at)


def test_what_was_kept_is_read_again_and_without_a_file_there_is_no_backfill(tmp_path: Path) -> None:
    assert plan_in(tmp_path) is None
    keep(tmp_path, BEGUN)
    assert plan_in(tmp_path) == BEGUN


@pytest.mark.parametrize("text", ["", "{", "[]", '{"phase": "later"}', '{"phase": "live"}'])
def test_a_file_that_cannot_be_read_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / BACKFILL).write_text(text)
    with pytest.raises(CheckpointMismatch, match=r"backfill\.json"):
        plan_in(tmp_path)


@pytest.mark.parametrize(
    ("heartbeat", "phase"),
    [
        ({"tick": 7, "drain": 0}, Phase.HISTORY),
        ({"tick": 7, "drain": 0, "live": 1}, Phase.LIVE),
    ],
)
def test_at_a_batch_the_phase_is_the_one_that_its_heartbeat_tells(heartbeat: dict[str, int], phase: Phase) -> None:
    positions = ('{"logOffset": 1}', '{"plays": {"0": 3}}', json.dumps(heartbeat))
    assert plan_at(BEGUN, positions).phase is phase


def test_a_job_is_restored_with_the_backfill_that_it_was_begun_with() -> None:
    require_same(None, None)
    require_same(BEGUN, asked())
    with pytest.raises(SavepointError, match="started without a backfill"):
        require_same(None, asked())
    for other in (None, asked(datetime(2024, 5, 2, tzinfo=UTC)), asked({"plays": {"0": 3}})):
        with pytest.raises(SavepointError, match="started with a backfill"):
            require_same(BEGUN, other)
