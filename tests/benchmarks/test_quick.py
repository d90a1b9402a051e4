"""The benchmark itself, small: it runs to its end, and every contestant gives the right answer."""

from pathlib import Path

import pytest

from benchmarks.turns import Asked
from benchmarks.windows import main


@pytest.mark.spark
@pytest.mark.campaign
def test_every_contestant_gives_the_right_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(Asked(quick=True, work=tmp_path)) == 0, capsys.readouterr().out
