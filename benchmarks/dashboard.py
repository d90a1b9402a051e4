"""Measure the dashboard's response times: 200 jobs with a day of history, each route requested repeatedly.

python -m benchmarks.dashboard [--quick] [--jobs N] [--rounds N]

The dashboard runs as the user's command, in a separate process. Results are stored in results/dashboard.json, except
with --quick.
"""

import argparse
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import IO, Any, Final, cast
from urllib.parse import urlsplit

from benchmarks import machine
from strandline.dashboard.jobs import id_of
from strandline.spark.launch.package_manager import find_chromium
from tests.dashboard.browser import chromium, window
from tests.dashboard.filled import JobToFill, fill

RESULTS: Final = Path(__file__).with_name("results") / "dashboard.json"
GOALS: Final = {"slowest route, p95": 100.0, "first paint": 1000.0, "memory": 150.0}
"""Goals: milliseconds per response and first paint, and megabytes."""
HOUR: Final = 3600
FINE, COARSE = 1_200, 23 * 60
"""Seconds between batches of the last hour; before that one point per minute."""


@dataclass(frozen=True, slots=True)
class Served:
    """A running dashboard process and its output."""

    process: int
    says: IO[str]

    def link(self) -> str:
        """Return the next login link; each is valid for one browser."""
        return next(line for line in self.says if "http" in line).partition(": ")[2].strip()

    @property
    def most_memory(self) -> float:
        """Return the peak memory in megabytes."""
        told = Path(f"/proc/{self.process}/status").read_text()
        return next(int(line.split()[1]) for line in told.splitlines() if line.startswith("VmHWM:")) * 1024 / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="ten jobs, five rounds; its figures say little")
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=200)
    asked = parser.parse_args()
    jobs, rounds = (10, 5) if asked.quick else (asked.jobs, asked.rounds)
    with tempfile.TemporaryDirectory() as folder:
        told = measured(Path(folder), jobs, rounds)
    told |= {"command": " ".join(["python -m benchmarks.dashboard", *sys.argv[1:]])}
    if not asked.quick:
        RESULTS.write_text(json.dumps(told, indent=1) + "\n")
    return 0


def measured(root: Path, jobs: int, rounds: int) -> dict[str, Any]:
    """Measure the dashboard and return the results, printing progress."""
    make(root / "jobs", jobs)
    size = sum(file.stat().st_size for file in (root / "jobs").rglob("metrics.db")) / 1e6
    print(f"{jobs} jobs with a day of history: {size:.0f} MB")
    with served(root / "jobs", root / "home") as dashboard:
        client = Client(dashboard)
        print(f"all jobs are shown after {until_all(client, jobs):.1f} s")
        routes = shares(measure(client, root / "jobs", jobs, rounds))
        tell(routes)
        painted = paint(dashboard.link()) if find_chromium() is not None else {}
        memory = dashboard.most_memory
    print(f"most memory of the dashboard: {memory:.0f} MB; in Chromium, milliseconds: {painted}")
    return {
        "commit": machine.commit(),
        "machine": machine.facts(),
        "jobs": jobs,
        "rounds": rounds,
        "megabytes": {"history": size, "memory": memory},
        "milliseconds": {"routes": routes, **painted},
        "goals": GOALS,
    }


@contextmanager
def served(jobs: Path, home: Path) -> Iterator[Served]:
    """Run `strandline dashboard` until the end of the block."""
    command = [str(Path(sys.executable).with_name("strandline")), "dashboard", str(jobs), "--port", "0"]
    where = {**os.environ, "XDG_DATA_HOME": str(home)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=where) as process:
        try:
            yield Served(process.pid, cast("IO[str]", process.stdout))
        finally:
            process.terminate()


def make(root: Path, jobs: int) -> None:
    """Create the jobs: one is filled, the others are renamed copies; only their size matters."""
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
    """One keep-alive connection, like a browser's."""

    def __init__(self, dashboard: Served) -> None:
        address = urlsplit(dashboard.link())
        self._connection = http.client.HTTPConnection("127.0.0.1", address.port or 0)
        self._headers: dict[str, str] = {}
        self._connection.request("GET", f"{address.path}?{address.query}")
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
    """Return milliseconds by route; requests rotate over ten jobs, as a browsing user would."""
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


def paint(link: str) -> dict[str, float]:
    """Return when a browser with an empty cache first paints, and when all jobs are shown."""
    with chromium() as browser, window(browser) as seen:
        seen.page.goto(link)
        seen.page.locator("tr.opens").first.wait_for()
        first, every = seen.page.evaluate(
            "() => [performance.getEntriesByName('first-contentful-paint')[0]?.startTime, performance.now()]"
        )
    return {"first paint": first, "all jobs": every}


def shares(took: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Return median, p95 and maximum of each route."""
    return {
        path: {"median": median(times), "p95": _share(times, 0.95), "worst": max(times)} for path, times in took.items()
    }


def tell(routes: dict[str, dict[str, float]]) -> None:
    print(f"\n{'milliseconds':<32}{'median':>8}{'p95':>8}{'worst':>8}")
    for path, told in routes.items():
        print(f"{path:<32}{told['median']:8.1f}{told['p95']:8.1f}{told['worst']:8.1f}")


def _share(times: list[float], share: float) -> float:
    return sorted(times)[min(int(len(times) * share), len(times) - 1)]


if __name__ == "__main__":
    sys.exit(main())
