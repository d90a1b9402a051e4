"""The dashboard in a real Chromium."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from strandline.cli.actions.dlq import sources_of, stores_of
from strandline.dashboard.dead_letter_queries import OpenedLetters
from strandline.dashboard.jobs import id_of
from strandline.dashboard.server import Dashboard, Options
from strandline.observe.metrics.history import JobState, find_jobs
from strandline.spark.launch.package_manager import find_chromium
from tests.dashboard.browser import NARROW, WITHIN, Seen, chromium, window
from tests.dashboard.filled import JobToFill, fill
from tests.dashboard.letters import letters_pipeline, put_letters
from tests.dashboard.screens import PAGES

pytestmark = [
    pytest.mark.services,
    pytest.mark.skipif(find_chromium() is None, reason="there is no Chromium, and no package manager that gives it"),
]

PAYLOADS = (
    "<script>document.title = 'pwned'</script>",
    "<img src=x onerror=\"document.title = 'pwned'\">",
    '"><svg onload=alert(1)>',
    "javascript:alert(1)",
    "{{7*7}}</title><b>",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def show(tmp_path: Path) -> Iterator[Callable[..., Dashboard]]:
    """Dashboards over a folder of jobs; the key is kept between two starts."""
    running: list[Dashboard] = []

    def shown(root: Path, port: int = 0, ways: dict[Path, OpenedLetters] | None = None) -> Dashboard:
        options = Options(port=port, home=tmp_path / "home")
        dashboard = Dashboard(lambda: find_jobs([root]), options, open_pipeline=(ways or {}).get)
        running.append(dashboard.__enter__())
        return dashboard

    yield shown
    for dashboard in running:
        dashboard.__exit__(None, None, None)


def enter(seen: Seen, dashboard: Dashboard) -> None:
    """Open the link, and wait for the page of jobs."""
    seen.page.goto(dashboard.url)
    seen.page.get_by_role("heading", name="Jobs").wait_for(timeout=WITHIN)


@pytest.mark.parametrize(("theme", "size"), [("light", (1280, 860)), ("dark", NARROW)])
def test_every_page_opens_without_errors(
    browser: Browser, show: Callable[..., Dashboard], filled: Path, theme: str, size: tuple[int, int]
) -> None:
    dashboard = show(filled)
    with window(browser, size=size, theme=theme) as seen:
        enter(seen, dashboard)
        seen.says("scores by team")
        for tab, heading in PAGES.items():
            seen.go(f"#/job/{id_of(filled / 'well')}/{tab}", heading)
            assert seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{tab} is too wide"
        assert seen.complaints == []
        assert "token" not in seen.page.url


def test_the_dashboard_can_be_used_by_keyboard(browser: Browser, show: Callable[..., Dashboard], filled: Path) -> None:
    dashboard = show(filled)
    with window(browser) as seen:
        enter(seen, dashboard)
        seen.says("scores by team")
        keyboard = seen.page.keyboard
        keyboard.press("?")
        seen.page.get_by_role("heading", name="Keys").wait_for()
        keyboard.press("Escape")
        keyboard.press("j")
        keyboard.press("Enter")
        seen.page.get_by_role("heading", name="Events a second").wait_for()
        keyboard.press("g")
        keyboard.press("l")
        seen.page.get_by_role("heading", name="How late elements are").wait_for()
        keyboard.press("h")
        seen.page.get_by_role("heading", name="Jobs").wait_for()
        keyboard.press("x")
        assert seen.page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_keys_names_and_letters_are_shown_as_text_never_as_markup(
    browser: Browser, show: Callable[..., Dashboard], tmp_path: Path
) -> None:
    root, hostile = letters_pipeline(tmp_path).root, " ".join(PAYLOADS)
    waits = JobToFill(hostile, batches=6, key=hostile, state=JobState.WAITING, problem=hostile)
    folder = fill(tmp_path / "jobs" / "one", waits)
    put_letters(tmp_path, hostile.encode())
    dashboard = show(tmp_path / "jobs", ways={folder: OpenedLetters(stores_of(root), sources_of(root))})
    with window(browser) as seen:
        enter(seen, dashboard)
        seen.page.get_by_role("link", name=hostile, exact=True).wait_for()
        for tab in ("overview", "panes", "keys", "events", "letters"):
            seen.go(f"#/job/{id_of(folder)}/{tab}", PAGES[tab])
            seen.page.get_by_role("heading", name=hostile, exact=True).wait_for()
        seen.page.get_by_role("row").nth(1).click()
        seen.page.locator("dialog pre").get_by_text(hostile, exact=True).wait_for()
        assert seen.complaints == []
        assert seen.page.title() == f"{hostile}: Dead letters · Strandline"
        assert seen.page.locator("img[onerror], svg[onload], main script").count() == 0


def test_a_page_reconnects_after_the_dashboard_restarts(
    browser: Browser, show: Callable[..., Dashboard], tmp_path: Path
) -> None:
    fill(tmp_path / "jobs" / "one", JobToFill("one", batches=4))
    dashboard = show(tmp_path / "jobs")
    with window(browser) as seen:
        enter(seen, dashboard)
        seen.page.locator(".feed.live").wait_for()
        dashboard.__exit__(None, None, None)
        seen.page.locator(".feed.lost").wait_for()
        fill(tmp_path / "jobs" / "two", JobToFill("came meanwhile", batches=4))
        show(tmp_path / "jobs", port=dashboard.port)
        seen.page.locator(".feed.live").wait_for()
        seen.says("came meanwhile")


def test_the_slider_shows_what_a_longer_wait_completes(
    browser: Browser, show: Callable[..., Dashboard], filled: Path
) -> None:
    dashboard = show(filled)
    with window(browser) as seen:
        enter(seen, dashboard)
        seen.go(f"#/job/{id_of(filled / 'well')}/lateness", PAGES["lateness"])
        seen.page.get_by_role("button", name="95 % after").click()
        result = seen.page.locator(".answer").inner_text()
        seen.page.locator("input[type=range]").fill("1000")
        seen.page.get_by_text("100 % would be complete").wait_for()
        assert result.startswith("If you waited")


def test_the_panes_of_a_late_event_are_found_by_key(
    browser: Browser, show: Callable[..., Dashboard], filled: Path
) -> None:
    dashboard = show(filled)
    with window(browser) as seen:
        enter(seen, dashboard)
        seen.go(f"#/job/{id_of(filled / 'well')}/panes", PAGES["panes"])
        seen.page.get_by_label("Search keys").fill("red")
        seen.page.get_by_role("button", name="team red").click()
        seen.page.locator(".pick > div:nth-child(2) button").last.click()
        result = seen.page.locator(".story .timing").all_inner_texts()
        assert result == ["early", "retracts", "early", "retracts", "on time", "retracts", "late"]


def test_a_dead_letter_is_inspected_and_redriven(
    browser: Browser, show: Callable[..., Dashboard], tmp_path: Path
) -> None:
    root = letters_pipeline(tmp_path).root
    folder = fill(tmp_path / "jobs" / "one", JobToFill("one", batches=4))
    put_letters(tmp_path, b"{broken")
    dashboard = show(tmp_path / "jobs", ways={folder: OpenedLetters(stores_of(root), sources_of(root))})
    with window(browser) as seen:
        enter(seen, dashboard)
        seen.go(f"#/job/{id_of(folder)}/letters", PAGES["letters"])
        seen.page.get_by_role("row").nth(1).click()
        seen.page.locator("dialog pre").get_by_text("{broken").wait_for()
        seen.page.get_by_role("button", name="Redrive it").click()
        seen.says("1 redriven to their sources.")
        seen.page.locator(".badge.ok", has_text="redriven").wait_for()
        assert seen.complaints == []
    (sent,) = (tmp_path / "in").iterdir()
    assert sent.read_bytes() == b"{broken\n"
