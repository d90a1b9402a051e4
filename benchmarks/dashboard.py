"""How fast the dashboard answers: 200 jobs with a day of history, every route asked again and again, on this machine.

python -m benchmarks.dashboard [--jobs N] [--rounds N]
"""

import argparse
import http.client
import json
import resource
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any, Final

from strandline.dashboard.jobs import id_of
from strandline.dashboard.server import Dashboard, Options
from strandline.observe.history import find_jobs
from strandline.spark.package_manager import find_chromium
from tests.dashboard.filled import JobToFill, fill

HOUR: Final = 3600
FINE, COARSE = 1_200, 23 * 60
"""A batch every three seconds for the last hour, and a point a minute before that."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=200)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        started = time.monotonic()
        make(root / "jobs", asked.jobs)
        size = sum(file.stat().st_size for file in (root / "jobs").rglob("metrics.db")) / 2**20
        print(f"{asked.jobs} jobs with a day of history: {size:.0f} MiB, made in {time.monotonic() - started:.0f} s")
        with Dashboard(lambda: find_jobs([root / "jobs"]), Options(port=0, home=root / "home")) as dashboard:
            client = Client(dashboard)
            waited = until_all(client, asked.jobs)
            print(f"all jobs are shown after {waited:.1f} s")
            tell(measure(client, root / "jobs", asked.jobs, asked.rounds))
            print(f"most memory of this process, server and client together: {_most_memory():.0f} MiB")
            if find_chromium() is not None:
                print("the page of all jobs in Chromium, milliseconds:", paint(dashboard))
    return 0


def make(root: Path, jobs: int) -> None:
    """One job is filled, the others are copies with other names: what they hold does not matter, how much does."""
    now = time.time_ns() // 1_000_000
    first = fill(root / "job-000", JobToFill("job 0", batches=COARSE, every=60_000), now - HOUR * 1000)
    fill(first, JobToFill("job 0", batches=FINE, every=3_000), now)
    files = [(file.name, file.read_bytes()) for file in first.iterdir() if file.is_file()]
    for number in range(1, jobs):
        folder = root / f"job-{number:03}"
        folder.mkdir()
        for name, data in files:
            (folder / name).write_bytes(data)


class Client:
    """A browser's connection: one, kept open."""

    def __init__(self, dashboard: Dashboard) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", dashboard.port)
        self._headers: dict[str, str] = {}
        path = dashboard.url.partition(str(dashboard.port))[2]
        self._connection.request("GET", path)
        answer = self._connection.getresponse()
        answer.read()
        self._headers = {"Cookie": (answer.getheader("set-cookie") or "").partition(";")[0]}

    def get(self, path: str) -> Any:
        self._connection.request("GET", path, headers=self._headers)
        answer = self._connection.getresponse()
        told = answer.read()
        assert answer.status == 200, told  # noqa: S101
        return json.loads(told)


def until_all(client: Client, jobs: int) -> float:
    started = time.monotonic()
    while len(client.get("/api/jobs")["jobs"]) < jobs:
        time.sleep(0.05)
    return time.monotonic() - started


def measure(client: Client, root: Path, jobs: int, rounds: int) -> dict[str, list[float]]:
    """Milliseconds by route; jobs are asked in turns, ten of them, as by somebody who looks around."""
    paths = [
        path for path in client.get("/api/openapi.json")["paths"] if "{letter}" not in path and "redrive" not in path
    ]
    took = defaultdict[str, list[float]](list)
    for number in range(rounds):
        job = id_of(root / f"job-{number // 20 % min(jobs, 10):03}")
        for path in paths:
            parameters = "?span=86400" if path.endswith(("/series", "/times")) else ""
            started = time.perf_counter()
            client.get(path.replace("{job}", job) + parameters)
            took[path].append((time.perf_counter() - started) * 1000)
    return took


def paint(dashboard: Dashboard) -> str:
    """When a browser that comes for the first time has painted something, and when every job is on the page."""
    from tests.dashboard.browser import chromium, window  # noqa: PLC0415 - it would count as the dashboard's memory

    with chromium() as browser, window(browser) as seen:
        seen.page.goto(dashboard.url)
        seen.page.locator("tr.opens").first.wait_for()
        told = seen.page.evaluate(
            "() => [performance.getEntriesByName('first-contentful-paint')[0]?.startTime, performance.now()]"
        )
    return f"first paint {told[0]:.0f}, all jobs {told[1]:.0f}"


def tell(took: dict[str, list[float]]) -> None:
    print(f"\n{'milliseconds':<32}{'median':>8}{'p95':>8}{'worst':>8}")
    for path, times in took.items():
        print(f"{path:<32}{median(times):8.1f}{_share(times, 0.95):8.1f}{max(times):8.1f}")
    every = [each for times in took.values() for each in times]
    print(f"{'all of them':<32}{median(every):8.1f}{_share(every, 0.95):8.1f}{max(every):8.1f}\n")


def _share(times: list[float], share: float) -> float:
    return sorted(times)[min(int(len(times) * share), len(times) - 1)]


def _most_memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main())
