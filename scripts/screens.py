"""Take the dashboard's screenshots for the docs in a real Chromium, with made-up jobs: docs/pictures/.

python scripts/screens.py [FOLDER]     the screenshots of the docs, into docs/pictures or the given folder
python scripts/screens.py --all FOLDER every page, light and dark, wide and narrow, for review
"""

import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from strandline.cli.actions.dlq import sources_of, stores_of
from strandline.dashboard.dead_letter_queries import OpenedLetters
from strandline.dashboard.jobs import id_of
from strandline.dashboard.server import Dashboard, Options
from strandline.observe.metrics.history import JobState, find_jobs
from strandline.observe.metrics.tables import AlarmLine
from tests.dashboard.browser import NARROW, Seen, chromium, window
from tests.dashboard.filled import JobToFill, a_dead_process, fill
from tests.dashboard.letters import letters_pipeline, put_letters
from tests.dashboard.screens import PAGES

WIDE: Final = (1280, 480)
"""Full pages are captured, no taller than their content."""
PICTURES: Final = (
    ("jobs", "light", WIDE), ("overview", "light", WIDE), ("time", "dark", WIDE), ("panes", "light", WIDE),
    ("lateness", "light", WIDE), ("letters", "light", WIDE), ("overview", "dark", NARROW),
)  # fmt: skip
_BROKEN: Final = (b'{"team": "red", "sco', b'{"team": "blue", "score": "many"}', b"\xff\xfe\x00", b"42")
_SETTLE: Final = 400


def main(arguments: list[str]) -> int:
    every = "--all" in arguments
    places = [each for each in arguments if not each.startswith("-")]
    into = Path(places[0]) if places else ROOT / "docs" / "pictures"
    into.mkdir(parents=True, exist_ok=True)
    wanted = [
        (page, theme, size) for page in ("jobs", *PAGES) for theme in ("light", "dark") for size in (WIDE, NARROW)
    ]
    with (
        tempfile.TemporaryDirectory(prefix="strandline-") as folder,
        chromium() as browser,
        sample_dashboard(Path(folder)) as dashboard,
    ):
        for page, theme, size in wanted if every else PICTURES:
            with window(browser, size=size, theme=theme) as seen:
                take(seen, dashboard, Path(folder), page)
                narrow = "-phone" if size == NARROW else ""
                path = into / f"dashboard-{page}{'-dark' if theme == 'dark' and every else ''}{narrow}.png"
                seen.page.screenshot(path=path, full_page=size == WIDE)
                print(path, *seen.complaints)
    return 0


def sample_dashboard(folder: Path) -> Dashboard:
    """Return a dashboard over jobs of every kind."""
    jobs = folder / "jobs"
    stuck = "the watermark has not moved for 8 batches; partition scores-0 holds it back"
    alarm = AlarmLine("watermark stuck", "firing", 1_794_740_000_000, stuck, "idle_after(seconds=30) lets it go on", 2)
    fill(jobs / "scores", JobToFill("scores by team"))
    fill(jobs / "clicks", JobToFill("clicks by page", rate=3.1, stuck=True, lag=90_000, alarms=[alarm]))
    fill(jobs / "orders", JobToFill("orders to warehouse", rate=0.2, pid=a_dead_process()))
    fill(jobs / "backfill", JobToFill("backfill of May", rate=7.5, state=JobState.COMPLETE))
    away = "postgres('totals') is out of reach: connection refused"
    fill(jobs / "payments", JobToFill("payments by card", rate=0.6, state=JobState.WAITING, problem=away))
    fill(jobs / "sessions", JobToFill("sessions", rate=1.7))
    put_letters(folder, *_BROKEN)
    root = letters_pipeline(folder).root
    ways = {jobs / "scores": OpenedLetters(stores_of(root), sources_of(root))}
    return Dashboard(lambda: find_jobs([jobs]), Options(port=0, home=folder / "home"), open_pipeline=ways.get)


def take(seen: Seen, dashboard: Dashboard, folder: Path, page: str) -> None:
    """Open the dashboard and go to a page."""
    seen.page.goto(dashboard.url)
    seen.says("backfill of May")
    if page != "jobs":
        seen.go(f"#/job/{id_of(folder / 'jobs' / 'scores')}/{page}", PAGES[page])
    seen.page.wait_for_timeout(_SETTLE)  # charts are drawn once their element has a width


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
