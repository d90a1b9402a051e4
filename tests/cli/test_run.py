"""Running a user's pipeline from the command line."""

from pathlib import Path

import pytest

from strandline.cli.actions.run import find
from strandline.cli.main import main
from strandline.errors import SetupError
from strandline.plan.pipeline import Pipeline

JOB = """
import strandline as sl

panes = (
    sl.read(sl.scores(events=400, rate=4_000))
    .event_time("at", sl.bounded(seconds=3))
    .key_by("team")
    .window(sl.tumbling(seconds=5))
    .aggregate(total=sl.sum("score"))
)
totals = panes.write(sl.sqlite({database!r}, table="totals"))
pipeline = panes.write(sl.discard())
number = 5
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    file = tmp_path / "job.py"
    file.write_text(JOB.format(database=str(tmp_path / "totals.db")))
    return file


def command(*words: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(words)
    return int(left.value.code or 0)


def test_a_pipeline_is_found_by_its_file_and_name(job: Path) -> None:
    assert isinstance(find(f"{job}:totals"), Pipeline)
    assert find(str(job)) == find(f"{job}:pipeline")


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("{job}:missing", "missing is nothing"),
        ("{job}:number", "number is a int"),
        ("{job}x.py", "there is no file"),
        ("no.such.module:it", "there is no module no.such.module"),
    ],
)
def test_a_name_that_is_not_a_pipeline_is_refused(job: Path, place: str, message: str) -> None:
    with pytest.raises(SetupError) as refused:
        find(place.format(job=job))
    assert message in str(refused.value)
    assert refused.value.hint


def test_explain_prints_the_stages(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("explain", f"{job}:totals") == 0
    assert "deliver   to sqlite('totals'), exactly once" in capsys.readouterr().out


@pytest.mark.spark
def test_a_pipeline_runs_to_its_end_and_prints_the_counts(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("run", f"{job}:totals", "--checkpoint", str(tmp_path / "checkpoint")) == 0
    output = capsys.readouterr().out
    assert "All input was read: 400 in = " in output
    assert command("run", f"{job}:totals", "--checkpoint", str(tmp_path / "checkpoint")) == 0
    output = capsys.readouterr().out
    assert f"The job in {tmp_path / 'checkpoint'} has ended before: nothing was read." in output
    assert "0 in" not in output
