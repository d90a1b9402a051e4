"""A replay from the command line: the log into a new table, the difference, the switch, and the way back."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from strandline.cli.main import main
from tests.spark.test_bounded import ask, in_files, scores

pytestmark = pytest.mark.spark

JOB = """
import strandline as sl

source = sl.files({folder!r}, sl.json("team string, score long, at timestamp"), ends=True)
pipeline = (
    sl.read(source){step}
    .event_time("at", sl.bounded(seconds=10))
    .key_by("team")
    .window(sl.tumbling(minutes=1))
    .aggregate(total=sl.sum("score"))
    .write(sl.sqlite({database!r}, table="totals"))
)
"""
CUT = "2024-05-01T12:02:00Z"


def before(row: dict[str, Any]) -> bool:
    return datetime.fromisoformat(row["at"]) < datetime.fromisoformat(CUT)


def strandline(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(words)
    return int(ended.value.code or 0)


@pytest.mark.usefixtures("spark")
def test_a_mended_pipeline_is_replayed_from_a_time_on_compared_and_switched_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database, job = tmp_path / "totals.db", tmp_path / "replayed_job.py"
    told = {"folder": str(in_files(tmp_path / "in")), "database": str(database)}
    job.write_text(JOB.format(step="", **told))
    assert strandline("run", str(job), "--checkpoint", str(tmp_path / "live"), "--plain") == 0
    job.write_text(JOB.format(step='.where("score > 2")', **told))
    replay = ("--to-new-version", "totals_v2", "--checkpoint", str(tmp_path / "v2"), "--plain")
    assert strandline("replay", "start", str(job), "--from", "noon", *replay) == 2
    assert strandline("replay", "start", str(job), "--from", CUT, *replay) == 0
    capsys.readouterr()
    assert strandline("replay", "diff", str(job), "totals_v2", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    rows = scores()
    after = {row["at"][:16] for row in rows if not before(row)}
    assert found["compared"] == found["changed"] == 3 * len(after)
    assert strandline("replay", "diff", str(job), "totals_v2", "--limit", "1") == 1
    assert (
        f"{3 * len(after)} rows compared: 0 only live, 0 only new, {3 * len(after)} changed" in capsys.readouterr().out
    )
    assert strandline("replay", "drop", str(job), "totals") == 2
    assert strandline("replay", "switch", str(job), "totals_v2") == 0
    ((total,),) = ask(database, "SELECT sum(total) FROM totals_current")
    assert total == sum(row["score"] for row in rows if before(row) or row["score"] > 2)
    assert strandline("replay", "list", str(job)) == 0
    assert "totals_v2  from 2024-05-01T12:02:00+00:00  current" in capsys.readouterr().out
    # Windows before the time are still those of the live table, so it stays.
    assert strandline("replay", "drop", str(job), "totals") == 2
    assert ask(database, "SELECT count(*) FROM totals_v2")[0][0] > 0
