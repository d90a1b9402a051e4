"""Start the files of tests that take longest first, so that none of them runs alone at the end.

`seconds.json` holds what each file took, measured beside other work and in parts estimated: only its order counts.
`./test all --record-seconds` writes it again. Files that it does not name count as short.
"""

import json
from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest

TABLE: Final = Path(__file__).with_name("seconds.json")
LEAST_SECONDS: Final = 3.0
"""Shorter files are left out of the table."""


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "write the seconds that each file of tests took to tests/seconds.json"
    parser.addoption("--record-seconds", action="store_true", help=text)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--record-seconds") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the files by their seconds. The tests of a file keep their order and stay together."""
    seconds: dict[str, float] = json.loads(TABLE.read_text(encoding="utf-8"))
    items.sort(key=lambda item: -seconds.get(item.nodeid.partition("::")[0], 0))


class Recorder:
    """Add up the seconds of each file, and write them to the table at the end."""

    def __init__(self, table: Path = TABLE) -> None:
        self._table = table
        self._seconds = defaultdict[str, float](float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid.partition("::")[0]] += report.duration

    def pytest_sessionfinish(self) -> None:
        long = {file: round(spent) for file, spent in sorted(self._seconds.items()) if spent >= LEAST_SECONDS}
        self._table.write_text(json.dumps(long, indent=1) + "\n", encoding="utf-8")
