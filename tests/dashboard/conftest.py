"""Fixtures: a dashboard over a few jobs, called without a browser and without a port."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from strandline.dashboard.dead_letter_page import DeadLetterPages
from strandline.dashboard.dead_letter_queries import OpenedLetters
from strandline.dashboard.jobs import Jobs, id_of
from strandline.dashboard.security import Gate, Keys
from strandline.dashboard.server import Feed, application
from strandline.observe.metrics.history import JobState, find_jobs
from strandline.observe.metrics.tables import AlarmLine
from tests.dashboard.filled import JobToFill, a_dead_process, fill

PORT = 4999
HOST = f"127.0.0.1:{PORT}"
OURS = {"origin": f"http://{HOST}", "x-strandline": "1"}


@dataclass
class Served:
    """A dashboard, and a client that is signed in."""

    client: TestClient
    keys: Keys
    jobs: Jobs
    root: Path
    ways: dict[Path, OpenedLetters] = field(default_factory=dict)

    def get(self, path: str, **parameters: Any) -> Any:
        """The API's answer, which must not be a refusal."""
        answer = self.client.get(f"/api{path}", params=parameters)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def id(self, name: str) -> str:
        return id_of(self.root / name)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Serve the jobs of a folder."""
    opened: list[Jobs] = []

    def served(root: Path, *, read_only: bool = False) -> Served:
        jobs = Jobs(lambda: find_jobs([root]))
        keys = Keys(b"k" * 32, PORT)
        ways: dict[Path, OpenedLetters] = {}
        app = application(
            jobs,
            DeadLetterPages(ways.get),
            lambda inner: Gate(inner, keys, frozenset({HOST}), read_only=read_only),
            Feed(jobs),
            read_only=read_only,
        )
        client = TestClient(app, base_url=f"http://{HOST}", raise_server_exceptions=False)
        client.get(f"/enter?token={keys.link}")
        jobs.look()
        opened.append(jobs)
        return Served(client, keys, jobs, root, ways)

    yield served
    for jobs in opened:
        jobs.close()


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Jobs that are healthy, dead, firing, complete and failed; no process writes to them."""
    root = tmp_path_factory.mktemp("jobs")
    rings = AlarmLine("watermark stuck", "firing", 1_000, "the watermark has not moved", "use idle_after", 2)
    fill(root / "well", JobToFill("scores by team"))
    fill(root / "dead", JobToFill("orders", pid=a_dead_process()))
    fill(root / "rings", JobToFill("clicks", stuck=True, alarms=[rings]))
    fill(root / "complete", JobToFill("old", state=JobState.COMPLETE))
    fill(root / "failed", JobToFill("payments", state=JobState.FAILED, problem="the file a.json cannot be read"))
    return root
