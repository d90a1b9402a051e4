"""The order in which files of tests start."""

import json
from pathlib import Path

import pytest

from tests.schedule import LEAST_SECONDS, TABLE, Recorder, pytest_collection_modifyitems


class Item:
    def __init__(self, nodeid: str) -> None:
        self.nodeid = nodeid


def test_long_files_start_first_and_the_tests_of_a_file_stay_together_in_order() -> None:
    seconds = json.loads(TABLE.read_text())
    longest, shortest = max(seconds, key=seconds.__getitem__), min(seconds, key=seconds.__getitem__)
    order = [f"{file}::{test}" for test in ("z", "a") for file in ("tests/of_now.py", shortest, longest)]
    items = [Item(each) for each in order]
    pytest_collection_modifyitems(items)  # type: ignore[arg-type]
    files = (longest, shortest, "tests/of_now.py")
    assert [item.nodeid for item in items] == [f"{file}::{test}" for file in files for test in ("z", "a")]


def test_the_seconds_of_long_files_are_recorded(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "seconds.json")
    for nodeid, spent in {"a.py::one": LEAST_SECONDS, "a.py::two": 2.0, "b.py::one": LEAST_SECONDS / 2}.items():
        place = (nodeid, None, "")
        recorder.pytest_runtest_logreport(pytest.TestReport(nodeid, place, {}, "passed", None, "call", duration=spent))
    recorder.pytest_sessionfinish()
    assert json.loads((tmp_path / "seconds.json").read_text()) == {"a.py": 5}
