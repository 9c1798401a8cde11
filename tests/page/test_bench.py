"""The bench of the page measures what it says. No time is judged."""

import pytest
from bench import page
from playwright.sync_api import Browser

from tests.page.stage import needs_browser

pytestmark = [pytest.mark.slow, needs_browser]


@pytest.mark.parametrize("path", ["/", "/naive.html"], ids=["ours", "peer"])
def test_changes_are_seen(monkeypatch: pytest.MonkeyPatch, browser: Browser, path: str) -> None:
    """Both pages draw the changes that are sent: there are delays, and the thread that draws them works."""
    monkeypatch.setattr(page, "UNITS", 200)
    monkeypatch.setattr(page, "SECONDS", 1.0)
    part, median, late = page.measured(browser, path)
    assert 0 < part < 1.5
    assert 0 < median <= late < 1_000 * page.SECONDS
