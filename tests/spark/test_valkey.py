"""A whole job into a real Valkey: early panes replace each other, a late one corrects, a restart goes on."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from valkey import Valkey as Client

import strandline as sl
from strandline.services.service import Service

pytestmark = [pytest.mark.spark, pytest.mark.services]
pytest_plugins = ["strandline.testing.services"]


def put(folder: Path, number: int, *scores: tuple[str, int, int]) -> None:
    """A file of teams, scores and seconds."""
    folder.mkdir(exist_ok=True)
    lines = [{"team": team, "score": score, "at": f"2026-01-01T00:00:{at:02}Z"} for team, score, at in scores]
    (folder / f"{number}.json").write_text("".join(json.dumps(line) + "\n" for line in lines) + "not JSON\n")


def totals(address: str, prefix: str) -> dict[str, tuple[int, str]]:
    """Of each key its total, and when the pane was told."""
    client: Any = Client.from_url(address, decode_responses=True)
    rows: dict[str, Any] = {key: json.loads(client.get(key)) for key in client.scan_iter(f"{prefix}:*")}
    found = {key.removeprefix(f"{prefix}:"): (row["total"], row["timing"]) for key, row in rows.items()}
    client.close()
    return found


def test_the_latest_answers_of_a_job_are_in_valkey_after_late_elements_and_a_restart(
    spark: SparkSession, valkey: Service, tmp_path: Path
) -> None:
    speaks = sl.after_watermark(early=sl.repeatedly(sl.after_count(1)), late=sl.repeatedly(sl.after_count(1)))
    pipeline = (
        sl.read(sl.files(tmp_path / "in", sl.json("team string, score long, at timestamp"), files_per_batch=1))
        .event_time("at", sl.bounded(seconds=1))
        .key_by("team")
        .window(sl.tumbling(seconds=10))
        .trigger(speaks)
        .accumulate(sl.retracting)
        .allow_lateness(seconds=30)
        .aggregate(total=sl.sum("score"))
        .write(sl.valkey(valkey.address, prefix="whole", key=["team"]))
    )

    def run() -> None:
        pipeline.run(spark, checkpoint=tmp_path / "checkpoint", available_now=True).await_end()

    put(tmp_path / "in", 1, ("red", 5, 1), ("blue", 1, 2))
    put(tmp_path / "in", 2, ("red", 2, 3))
    run()
    assert totals(valkey.address, "whole") == {"red": (7, "early"), "blue": (1, "early")}

    put(tmp_path / "in", 3, ("blue", 4, 15))  # its time ends the first window
    put(tmp_path / "in", 4, ("red", 3, 4))  # and this is late for it
    run()
    assert totals(valkey.address, "whole") == {"red": (10, "late"), "blue": (4, "early")}

    client: Any = Client.from_url(valkey.address, decode_responses=True)
    assert client.xlen("whole.dead") == 4
    client.close()
    run()
    assert totals(valkey.address, "whole") == {"red": (10, "late"), "blue": (4, "early")}
