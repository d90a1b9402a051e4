"""The Spark of a run is the one that a user's job would have."""

from pathlib import Path

import pytest

from benchmarks import ours, sessions
from benchmarks.feeds import Feed, Folder, Form, Lines, Topic
from benchmarks.suite import TUMBLING
from benchmarks.workloads import Contestant
from strandline.plan.compile import to_stages
from strandline.spark.run import session_settings


@pytest.mark.parametrize("kind", [Folder, Lines])
def test_ours_is_started_as_a_job_over_the_same_files_would_be(kind: type[Folder | Lines], tmp_path: Path) -> None:
    as_a_job(kind(str(tmp_path)))


def test_so_it_is_over_a_topic() -> None:
    as_a_job(Topic("events", "localhost:1", Form.JSON, 1_000, ""))


def as_a_job(feed: Feed) -> None:
    stages = to_stages(ours.pipeline(feed, TUMBLING).root, 4)
    assert sessions.given(Contestant.OURS, feed) == session_settings(stages)
