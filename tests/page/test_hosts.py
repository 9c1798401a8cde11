"""Hosts of a fleet on the page, in a real Chromium, on a server that speaks the daemon's part."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.page.conftest import Visitor
from tests.page.fake import CSRF, FakeServer, row, serving
from tests.page.sample_answers import fake_with, why
from tests.page.stage import DESKTOP, PHONE, needs_browser
from tests.page.test_overview import ordered, units

pytestmark = [pytest.mark.slow, needs_browser]


def host(name: str, **fields: Any) -> dict[str, Any]:
    """A host that lives."""
    given = {"units": 0, "units_max": 0, "labels": {}, "page": "", "version": "1.2", "differs": False, "by": ""}
    return {"name": name, "state": "up", "since": time.time() - 3600, **given, **fields}


@pytest.fixture
def fake() -> FakeServer:
    made = FakeServer([row("web", host="a"), row("worker", host="b"), row("idle", running=False)])
    made.fleet["hosts"] = [
        host("a", units=1, page="https://a.example/", labels={"zone": "north"}),
        host("b", units=1, state="draining", page="javascript:window.hacked=1"),
        host("c", units=4, state="lost", differs=True),
    ]
    return made


@pytest.fixture
def site(fake: FakeServer) -> Iterator[str]:
    with serving(fake) as address:
        yield address


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_panel(visit: Visitor, site: str, fake: FakeServer, size: dict[str, int]) -> None:
    """Each host with its state and what it runs; its units are one click away; a row names its host; what is no address
    of the web is no link; nothing is wider than the window."""
    page = visit(site, size=size).page
    rows = page.get_by_role("table", name="Hosts of the fleet").locator("tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.nth(0)).to_contain_text("up")
    expect(rows.nth(0).get_by_role("link", name="a", exact=True)).to_have_attribute("href", "https://a.example/")
    expect(rows.nth(1)).to_contain_text("draining")
    expect(rows.nth(1).get_by_role("link", name="b", exact=True)).to_have_count(0)
    expect(rows.nth(2)).to_contain_text("lost")
    expect(rows.nth(2)).to_contain_text("had 4")
    expect(rows.nth(2)).to_contain_text("other settings")
    expect(rows.nth(2).get_by_role("button")).to_have_count(0)
    expect(page.locator(".where")).to_contain_text("2 hosts, 1 lost")
    expect(page.locator('[data-unit="web"] .col-kind')).to_contain_text("on a")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    rows.nth(1).get_by_role("link", name="1", exact=True).click()
    expect(page.locator(".unit-row")).to_have_count(1)
    assert units(page) == ["worker"]


def test_drain_asks_and_undo_does_not(visit: Visitor, site: str, fake: FakeServer) -> None:
    """Draining names the units that it ends, and asks; taking it back is done at once."""
    page = visit(site).page
    page.get_by_role("button", name="Drain").click()
    expect(page.get_by_role("dialog")).to_contain_text("a takes no units any more")
    expect(page.get_by_role("dialog")).to_contain_text("web")
    page.get_by_role("dialog").get_by_role("button", name="Drain").click()
    assert ordered(fake, page) == [("drain", {"host": "a"}, CSRF)]
    page.get_by_role("button", name="Undo").click()
    assert ordered(fake, page, 2)[1] == ("undrain", {"host": "b"}, CSRF)


def test_no_panel_without_hosts(visit: Visitor, site: str, fake: FakeServer) -> None:
    """A fleet on one machine says nothing of hosts; and whoever may only look can drain nothing."""
    fake.role = "look"
    page = visit(site).page
    expect(page.get_by_role("table", name="Hosts of the fleet")).to_be_visible()
    expect(page.get_by_role("button", name="Drain")).to_have_count(0)
    del fake.fleet["hosts"]
    page.reload()
    expect(page.locator(".unit-row")).to_have_count(3)
    expect(page.locator(".hosts")).to_have_count(0)


def test_a_unit(visit: Visitor) -> None:
    """Its page says on which host it runs, that its log is there, and moves it to another host after asking."""
    fake = fake_with("web", "text")
    fake.fleet["hosts"] = [host("a", units=1, page="https://a.example/"), host("b"), host("c", state="lost")]
    answer = why("web", running=True, host="a")
    fake.answers["why"] = lambda _: answer
    fake.answers["logs"] = lambda _: {"unit": "web", "lines": [], "host": "a", "page": "https://a.example/", "at": 0}
    with serving(fake) as address:
        window = visit(address, None)
        window.page.route("**/api/v1/journal/stream*", lambda route: route.fulfill(content_type="text/event-stream"))
        window.page.goto(f"{address}/#/unit/web")
        page = window.page
        expect(page.locator(".unit-head .facts")).to_contain_text("on a")
        expect(page.get_by_text("What it prints now is there: it runs on a.")).to_be_visible()
        choice = page.get_by_label("Move to another host")
        expect(choice.locator("option")).to_have_text(["Move to…", "b"])
        choice.select_option("b")
        page.get_by_role("dialog").get_by_role("button", name="Move to b").click()
        assert ordered(fake, page) == [("move", {"unit": "web", "host": "b"}, CSRF)]
