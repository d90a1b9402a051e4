"""A real job in a real browser: what came through the pipeline is what is seen, and it is text."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import strandline as sl
from strandline.dashboard.jobs import id_of
from strandline.dashboard.server import Dashboard, Options
from strandline.observe.history import find_jobs
from strandline.spark.job import Job
from strandline.spark.package_manager import find_chromium
from tests.dashboard.browser import chromium, window
from tests.dashboard.screens import PAGES

HOSTILE = '"><img src=x onerror=alert(1)><script>alert(2)</script>'

pytestmark = [
    pytest.mark.spark,
    pytest.mark.services,
    pytest.mark.skipif(find_chromium() is None, reason="there is no Chromium, and no package manager that gives it"),
]


def pipeline(folder: Path) -> sl.Pipeline:
    """Totals by team, told with every element; what cannot be read is a dead letter beside them."""
    return (
        sl.read(sl.files(str(folder / "in"), sl.json("team string, score long, at timestamp")))
        .event_time("at", sl.bounded(seconds=5))
        .key_by("team")
        .window(sl.tumbling(seconds=10))
        .trigger(sl.after_watermark(early=sl.after_count(1)))
        .accumulate(sl.accumulating)
        .aggregate(total=sl.sum("score"))
        .write(sl.sqlite(folder / "totals.db", table="totals"))
    )


def test_what_came_through_a_pipeline_is_seen_as_text(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = [{"team": HOSTILE, "score": 40 + each, "at": f"2026-05-01T10:00:0{each}Z"} for each in range(3)]
    lines = [*map(json.dumps, rows), f"{{{HOSTILE}"]
    (tmp_path / "in" / "a.txt").write_text("\n".join(lines) + "\n")
    job: Job = pipeline(tmp_path).run(spark, checkpoint=tmp_path / "jobs" / "real", name=HOSTILE, available_now=True)
    assert job.await_end(240)
    page = f"#/job/{id_of(tmp_path / 'jobs' / 'real')}"
    options = Options(port=0, home=tmp_path / "home")
    with (
        Dashboard(lambda: find_jobs([tmp_path / "jobs"]), options) as dashboard,
        chromium() as browser,
        window(browser) as seen,
    ):
        seen.page.goto(dashboard.url)
        seen.page.get_by_role("link", name=HOSTILE, exact=True).wait_for()
        for tab, heading in PAGES.items():
            seen.go(f"{page}/{tab}", heading)
        seen.go(f"{page}/panes", PAGES["panes"])
        seen.page.get_by_role("button", name=f"team {HOSTILE}").wait_for()
        seen.page.locator(".story .values", has_text="total 123").wait_for()
        seen.go(f"{page}/letters", PAGES["letters"])
        seen.page.get_by_role("row").nth(1).click()
        seen.page.locator("dialog pre").get_by_text(f"{{{HOSTILE}", exact=True).wait_for()
        assert seen.complaints == []
