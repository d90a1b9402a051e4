"""Set the number of generated histories: few in the fast tier, 20 times as many in a campaign as in CI.

STRANDLINE_HISTORIES=N asks for another number; CI takes 2,500. The histories are the same in every run.
"""

import os
from collections.abc import Iterator

import coverage
import pytest

from tests.properties.budget import CAMPAIGN, FAST, FULL


def pytest_configure(config: pytest.Config) -> None:
    tier = str(config.getoption("markexpr"))
    os.environ.setdefault("STRANDLINE_HISTORIES", str({"not campaign": FULL, "campaign": CAMPAIGN}.get(tier, FAST)))


@pytest.fixture(autouse=True, scope="package")
def unmeasured() -> Iterator[None]:
    """Disable coverage: thousands of histories run the same lines, and measuring takes longer than playing them."""
    running = coverage.Coverage.current()
    if running is not None:
        running.stop()
    yield
    if running is not None:
        running.start()
