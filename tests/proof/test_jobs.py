"""A real job on a real Spark, killed in the middle of a sink's transaction and after a commit that nobody knows of."""

from pathlib import Path

import pytest

from proof.jobs import Real
from proof.killing import Round, play
from proof.main import Asked
from proof.main import main as prove
from proof.schedule import Kill, Kind
from strandline.plan.endpoints import Delivery


@pytest.mark.campaign
def test_a_job_that_is_killed_twice_keeps_the_word_of_each_delivery_and_its_panes_are_exact(tmp_path: Path) -> None:
    # Of the second batch at the latest: totals, then a table for each delivery, each with its C9 and its C10.
    kills = [Kill(Kind.POINT, "marked:2"), Kill(Kind.POINT, "C10:4")]
    real = Real(str(tmp_path / "job"), ({"kind": "sqlite", "path": str(tmp_path / "sink")},))
    told: Round = play(real, 5, kills, {}, lambda _: None)
    assert told.faults == [], (tmp_path / "job" / "errors").read_text()[-2_000:]
    assert told.kills == len(kills)
    assert told.panes > 0
    found = {line.semantics: (line.lost > 0, line.repeated > 0, line.faults) for line in told.lines}
    assert found == {
        Delivery.AT_MOST_ONCE: (True, False, ()),
        Delivery.AT_LEAST_ONCE: (False, True, ()),
        Delivery.EXACTLY_ONCE: (False, False, ()),
    }


@pytest.mark.campaign
def test_the_campaign_finds_nothing_wrong() -> None:
    assert prove(Asked(campaign=True)) == 0
