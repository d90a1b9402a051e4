"""Drive a real Chromium over the dashboard: one browser, and a fresh window per test."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, Response, sync_playwright

from strandline.spark.launch.package_manager import find_chromium

WIDE, NARROW = (1280, 860), (390, 844)
WITHIN: Final = 60_000
"""Milliseconds to wait for a condition, on a machine that may be busy."""
ARGUMENTS: Final = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run",
]  # fmt: skip


@contextmanager
def chromium() -> Iterator[Browser]:
    """The system's browser, while it is needed."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Seen:
    """A window, and the errors that it logged."""

    page: Page
    complaints: list[str] = field(default_factory=list)

    def says(self, text: str) -> None:
        """Wait until the page shows a text."""
        self.page.get_by_text(text).first.wait_for(timeout=WITHIN)

    def go(self, address: str, heading: str) -> None:
        """Go to another page of the dashboard by its hash, and wait for its heading."""
        self.page.evaluate("hash => { location.hash = hash }", address)
        self.page.get_by_role("heading", name=heading).first.wait_for(timeout=WITHIN)


@contextmanager
def window(browser: Browser, *, size: tuple[int, int] = WIDE, theme: str = "light") -> Iterator[Seen]:
    """A window without cookies; it records console errors and failed requests."""
    width, height = size
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if theme == "dark" else "light",
        locale="en-GB",
        timezone_id="UTC",
    )
    context.set_default_timeout(WITHIN)
    page = context.new_page()
    seen = Seen(page)

    def heard(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            seen.complaints.append(message.text)

    def answered(response: Response) -> None:
        if response.status >= 400:
            seen.complaints.append(f"{response.status} {response.url}")

    def asked(dialog: Dialog) -> None:
        seen.complaints.append(f"dialog {dialog.message}")
        dialog.dismiss()

    page.on("console", heard)
    page.on("pageerror", lambda problem: seen.complaints.append(str(problem)))
    page.on("response", answered)
    page.on("dialog", asked)
    try:
        yield seen
    finally:
        context.close()
