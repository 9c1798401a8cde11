"""A real Chromium, and a watch on what it does: nothing leaves the machine, nothing complains on the console."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from flyball.runtimes.rule.browser import find_browser

DESKTOP: Final = {"width": 1280, "height": 800}
PHONE: Final = {"width": 390, "height": 844}
WAIT_MAX: Final = 15_000
"""Milliseconds for what has to come. It takes a few; a busy machine has time."""

needs_browser = pytest.mark.skipif(
    find_browser(os.environ) is None, reason="no Chromium here: apt-get install chromium"
)


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """The Chromium that the system has; its files are gone with it."""
    with tempfile.TemporaryDirectory(prefix="fb-") as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_browser(os.environ),
            headless=True,
            chromium_sandbox=os.geteuid() != 0,
            env={**os.environ, "TMPDIR": folder, "XDG_CONFIG_HOME": folder, "XDG_CACHE_HOME": folder},
        )
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """One person with one browser window."""

    def __init__(self, browser: Browser, address: str, size: dict[str, int], **options: Any) -> None:
        phone = size["width"] < 640
        self.address = address
        self.context = browser.new_context(
            viewport={"width": size["width"], "height": size["height"]}, is_mobile=phone, has_touch=phone, **options
        )
        self.context.set_default_timeout(WAIT_MAX)
        self.complaints: list[str] = []
        self.outside: list[str] = []
        self.expected: tuple[str, ...] = ()
        """Parts of complaints that belong to the case: a daemon that is killed on purpose is complained about."""
        self.page = self._watched(self.context.new_page())

    def _watched(self, page: Page) -> Page:
        page.on(
            "console", lambda said: self.complaints.append(said.text) if said.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self._seen(request.url))
        return page

    def _seen(self, url: str) -> None:
        if not url.startswith((self.address, "data:", "about:", "blob:")):
            self.outside.append(url)

    def another(self) -> Page:
        """One more tab of the same person."""
        return self._watched(self.context.new_page())

    def end(self) -> None:
        """Close the window. AssertionError if anything complained, or was fetched from elsewhere."""
        self.context.close()
        assert not self.outside, f"asked somebody else: {self.outside}"
        left = [one for one in self.complaints if not any(part in one for part in self.expected)]
        assert not left, f"complained on the console: {left}"


def picture(page: Page, file: Path) -> None:
    """What is to be seen now, in a file."""
    page.screenshot(path=file)
