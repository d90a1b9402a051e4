"""Keep jobs that tests start out of the user's list of known jobs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.observe.known_jobs import VARIABLE


@pytest.fixture(autouse=True, scope="session")
def _known_jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        place = tmp_path_factory.mktemp("known") / "jobs.json"
        patch.setenv(VARIABLE, str(place))
        yield place
