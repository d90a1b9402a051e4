"""The options of `run` are checked before anything starts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import strandline as sl
from strandline.errors import PlanError, Unsupported
from strandline.spark.run import run
from tests.plan.endpoints import totals

PIPELINE = totals().root


@pytest.mark.parametrize(
    ("options", "what", "hint"),
    [
        ({}, "missing a required argument: 'checkpoint'", "names.md"),
        ({"checkpoint": 7}, "cannot take 7 as checkpoint", "a text or a path"),
        ({"checkpoint": "job", "evry": "1s"}, "has no argument 'evry'", "did you mean 'every'?"),
        ({"checkpoint": "job", "every": "sometimes"}, "'sometimes' is not a length of time", "90s"),
        ({"checkpoint": "job", "every": "-5s"}, "every is -5s", "10s"),
        ({"checkpoint": "job", "heartbeat_seconds": 0}, "heartbeat_seconds is 0", "above 0"),
        ({"checkpoint": "job", "heartbeat_seconds": "2"}, "cannot take '2' as heartbeat_seconds", "a number"),
        ({"checkpoint": "job", "key_groups": "4"}, "cannot take '4' as key_groups", "a whole number"),
        ({"checkpoint": "job", "failure_budget": 0.1}, "cannot take 0.1 as failure_budget", "sl.failure_budget"),
        ({"checkpoint": "job", "settings": ["a"]}, "as settings", "a mapping"),
        ({"checkpoint": "job", "available_now": "yes"}, "cannot take 'yes' as available_now", "True or False"),
        ({"checkpoint": "job", "spark": "local[2]"}, "a value of type str is no Spark session", "leave it out"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_starts(
    options: dict[str, Any], what: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PlanError) as refused:
        run(PIPELINE, **options)
    assert what in refused.value.message
    assert hint in refused.value.hint
    assert not list(tmp_path.iterdir())


def connected(name: str) -> Any:
    """Return an object of the type that Spark Connect has in place of a classic one; its client is not installed."""
    return type(name, (), {"__module__": f"pyspark.sql.connect.{name.lower()}"})()


@pytest.mark.parametrize(
    "act",
    [
        lambda: run(PIPELINE, connected("SparkSession"), checkpoint="job"),
        lambda: sl.frame(connected("DataFrame")),
    ],
    ids=["a session", "a frame"],
)
def test_spark_connect_is_refused_by_name(act: Callable[[], Any]) -> None:
    with pytest.raises(Unsupported, match="Spark Connect") as refused:
        act()
    assert refused.value.hint
