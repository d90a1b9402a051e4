"""Real jobs in a real browser: what came through a pipeline is seen, as text, and so is that one was killed."""

import json
import re
import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import strandline as sl
from strandline.dashboard.jobs import id_of
from strandline.dashboard.server import Dashboard, Options
from strandline.observe.metrics.history import find_jobs
from strandline.services.processes import Process, birth_of
from strandline.spark.job import Job
from strandline.spark.launch.package_manager import find_chromium
from tests.dashboard.browser import chromium, window
from tests.dashboard.screens import PAGES
from tests.spark.test_kill import Demo, playing

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
        .write(sl.sqlite(folder / "jobs" / "totals.db", table="totals"))  # beside the job, where the page may look
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


def link_of(demo: Demo) -> str | None:
    found = [re.search(r"Dashboard: (http://\S+)", line) for line in [*demo.lines]]
    return next((each[1] for each in reversed(found) if each), None)


def dashboard_of(demo: Demo) -> Process:
    """The process that it started for its page."""
    mine = Process(demo.process.pid, birth_of(demo.process.pid) or "")
    words = {each: Path(f"/proc/{each.pid}/cmdline").read_bytes() for each in mine.children()}
    (found,) = [each for each, said in words.items() if b"strandline.cli.demo.dashboard_server" in said]
    return found


def test_a_demo_is_opened_looked_at_and_killed_and_its_page_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    page = f"#/job/{id_of(tmp_path / 'run' / 'checkpoint')}"
    with playing(tmp_path / "run", 25, "--dashboard") as demo, chromium() as browser, window(browser) as seen:
        demo.wait_for(lambda each: link_of(each) is not None)
        beside = dashboard_of(demo)
        try:
            seen.page.goto(link_of(demo) or "")
            demo.wait_for(lambda each: len(each.batches) > 2)
            seen.page.locator(".badge.ok", has_text="running").wait_for()
            seen.go(f"{page}/overview", PAGES["overview"])
            assert seen.page.locator(".five > *").count() == 5
            # The first pane is told two seconds of the job's clock after its first element, in whichever batch that is.
            seen.go(f"{page}/panes", PAGES["panes"])
            seen.page.get_by_role("button", name="team").first.wait_for()
            demo.signal(signal.SIGKILL)
            assert demo.end() == -signal.SIGKILL
            seen.page.locator(".badge.bad", has_text="dead").wait_for()
            seen.says("its process is gone")
            # Whoever comes later finds out what it told until then.
            seen.page.reload()
            seen.page.get_by_role("button", name="team").first.wait_for()
        finally:
            beside.send(signal.SIGTERM)
            assert beside.is_gone_within(60)
