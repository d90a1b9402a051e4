"""Generated histories are the same in every run, whichever tests ran before in the process."""

import importlib.util
import sys
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings

from tests.properties.crowds import crowds
from tests.properties.histories import History, histories


def drawn() -> list[str]:
    found: list[str] = []

    @settings(max_examples=60, derandomize=True, database=None, phases=[Phase.generate])
    @given(history=histories(), crowd=crowds("ab"))
    def draw(history: History, crowd: History) -> None:
        found.extend([str(history), str(crowd.pipeline), str(crowd.moves)])

    draw()
    return found


def test_a_module_that_is_loaded_in_between_changes_no_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = drawn()
    file = tmp_path / "many_numbers.py"
    file.write_text(f"NUMBERS = {[*range(300, 8_000, 11)]}\n")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    monkeypatch.setitem(sys.modules, file.stem, importlib.util.module_from_spec(spec))
    assert drawn() == before
