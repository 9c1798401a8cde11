"""One browser a file of tests, and one window a test, which is watched."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.page.stage import DESKTOP, Visit, chromium

Visitor = Callable[..., Visit]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """It takes a second to start. Not for longer than a file: while it is there an event loop runs, and tests of other
    files in the same worker could have none of their own."""
    with chromium() as running:
        yield running


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visitor]:
    """Open a window at an address; without a path it goes there later. What it complained about fails the test."""
    visits: list[Visit] = []

    def begin(address: str, path: str | None = "/", size: dict[str, int] = DESKTOP, **options: Any) -> Visit:
        visits.append(Visit(browser, address, size, **options))
        if path is not None:
            visits[-1].page.goto(address + path)
        return visits[-1]

    yield begin
    for one in visits:
        one.end()
