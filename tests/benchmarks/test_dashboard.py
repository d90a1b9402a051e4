"""The benchmark of the dashboard, without its run: what the page tells."""

from typing import Any

import pytest

from benchmarks import render
from benchmarks.dashboard import GOALS, shares
from tests.benchmarks.sample import results


def told(memory: float) -> dict[str, Any]:
    routes = shares({"/api/jobs": [1.0, 2.0, 30.0], "/api/jobs/{job}": [4.0, 4.0, 4.0]})
    return {
        "commit": "abc",
        "command": "the command",
        "machine": results()["machine"],
        "jobs": 200,
        "rounds": 3,
        "megabytes": {"history": 380.0, "memory": memory},
        "milliseconds": {"routes": routes, "first paint": 164.2, "all jobs": 900.0},
        "goals": GOALS,
    }


def test_the_page_tells_the_slowest_route_the_first_paint_and_the_memory() -> None:
    page = render.page(results(), of_dashboard=told(120.0))
    assert "| p95 of the slowest route, `/api/jobs` | 30 ms | < 100 ms | goal reached |" in page
    assert "| first paint of the page of all jobs | 164 ms | < 1000 ms | goal reached |" in page
    assert "| memory | 120 MB | < 150 MB | goal reached |" in page


@pytest.mark.parametrize("memory", [150.0, 213.0])
def test_too_much_memory_is_told_so(memory: float) -> None:
    page = render.page(results(), of_dashboard=told(memory))
    assert f"| memory | {memory:.0f} MB | < 150 MB | **goal not reached** |" in page
