"""Who cannot see the page, or reads it by night or in the sun: names, roles and contrasts, as the rules for
accessible pages (WCAG 2.1 AA) want them. Computed in a real Chromium, in both themes and sizes."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.page.conftest import Visitor
from tests.page.fake import FakeServer, serving
from tests.page.stage import DESKTOP, PHONE, needs_browser
from tests.page.test_overview import small_fleet

pytestmark = [pytest.mark.slow, needs_browser]

CONTRAST_MIN = 4.5
"""Between a text and its ground (WCAG 1.4.3)."""
THUMB_PX = 44
"""What is pressed with a thumb (WCAG 2.5.5)."""

CASES = pytest.mark.parametrize(
    ("size", "theme"),
    [(DESKTOP, "dark"), (DESKTOP, "light"), (PHONE, "dark"), (PHONE, "light")],
    ids=["desktop dark", "desktop light", "phone dark", "phone light"],
)

CONTRASTS = """() => {
  const rgb = (text) => {
    const canvas = Object.assign(document.createElement("canvas"), {width: 1, height: 1}).getContext("2d");
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => {
    const part = (v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const ground = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = rgb(getComputedStyle(one).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return rgb("white");
  };
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode.data.trim();
    const element = walk.currentNode.parentElement;
    if (!text || !element.checkVisibility() || element.closest("[disabled], .hidden, .skip")) continue;
    const [a, b] = [light(rgb(getComputedStyle(element).color)), light(ground(element))].sort((x, y) => y - x);
    found.push([(a + 0.05) / (b + 0.05), text.slice(0, 40), element.className]);
  }
  return found;
}"""

NAMELESS = """() => [...document.querySelectorAll(
  "a[href], button, input, select, textarea, dialog, section, nav, aside, [role=table], [role=img]"
)].filter((one) => {
  const label = one.getAttribute("aria-label")
    || document.getElementById(one.getAttribute("aria-labelledby"))?.textContent
    || (/^(A|BUTTON)$/.test(one.tagName) ? one.textContent : "");
  return one.checkVisibility() && !label?.trim();
}).map((one) => one.outerHTML.slice(0, 120))"""


@pytest.fixture
def fake() -> FakeServer:
    found = small_fleet()
    found.fleet["storm"] = True
    found.problems.append(found.problems[0] | {"id": "x", "acknowledged": True, "by": "ann", "severity": "info"})
    return found


@pytest.fixture
def site(fake: FakeServer) -> Iterator[str]:
    with serving(fake) as address:
        yield address


def opened(visit: Visitor, site: str, size: dict[str, int], theme: str) -> Page:
    page = visit(site, size=size, color_scheme=theme).page
    expect(page.locator(".unit-row").first).to_be_visible()
    page.get_by_text("acknowledged or snoozed").click()
    page.locator(".unit-row a").first.focus()
    return page


@CASES
def test_contrast(visit: Visitor, site: str, size: dict[str, int], theme: str) -> None:
    """Every text can be told from its ground, in the dialog and on the banner too."""
    page = opened(visit, site, size, theme)
    page.get_by_role("button", name="Stop it").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    seen: list[Any] = page.evaluate(CONTRASTS)
    assert len(seen) > 40
    assert [one for one in seen if one[0] < CONTRAST_MIN] == []


@CASES
def test_names(visit: Visitor, site: str, size: dict[str, int], theme: str) -> None:
    """All that can be pressed, filled in or jumped to has a name."""
    page = opened(visit, site, size, theme)
    assert page.evaluate(NAMELESS) == []
    page.get_by_role("button", name="Stop it").click()
    expect(page.get_by_role("dialog", name="Stop it?")).to_be_visible()
    assert page.evaluate(NAMELESS) == []


def test_roles(visit: Visitor, site: str) -> None:
    """Screen readers get one heading for the page and one for each part, a table with its true number of rows, and are
    told of what needs somebody, of what became of an order, and of a daemon that is gone."""
    page = opened(visit, site, DESKTOP, "dark")
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    expect(page.get_by_role("main")).to_have_count(1)
    expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
    table = page.get_by_role("table", name="Units")
    expect(table).to_have_attribute("aria-rowcount", "6")
    expect(table.get_by_role("row")).to_have_count(6)
    expect(table.get_by_role("columnheader")).to_have_count(6)
    expect(table.get_by_role("row").nth(1).get_by_role("cell")).to_have_count(6)
    expect(page.get_by_role("heading", name="Needs you (2)")).to_have_attribute("aria-live", "polite")
    expect(page.locator(".notices")).to_have_attribute("role", "status")
    assert page.evaluate("document.documentElement.lang") == "en"
    ids: list[str] = page.locator("[id]").evaluate_all("all => all.map(one => one.id)")
    assert len(ids) == len(set(ids))


def test_focus_is_seen(visit: Visitor, site: str) -> None:
    """Tab goes through all that can be pressed, from the link that skips the menu on, and each shows that it has the
    focus."""
    page = visit(site).page
    expect(page.locator(".unit-row").first).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    shown = """() => {
      const one = document.activeElement;
      const style = getComputedStyle(one.closest(".unit-row") ?? one);
      return [one.textContent.slice(0, 30), style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1];
    }"""
    reached = []
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement === document.body"):
            break
        reached.append(page.evaluate(shown))
    assert [text for text, visible in reached if not visible] == []
    assert {"Pause all", "Reset 7f3a9c00", "Ack", "coder-3", "triage-bot"} <= {text.strip() for text, _ in reached}


def test_thumbs(visit: Visitor, site: str) -> None:
    """On a phone every button and field is large enough for a thumb, and nothing is beyond the edge."""
    page = opened(visit, site, PHONE, "dark")
    small = page.locator("button, input, .button, .menu a").evaluate_all(
        "(all, least) => all.filter((one) => one.checkVisibility() && one.getBoundingClientRect().height < least)"
        ".map((one) => one.outerHTML.slice(0, 100))",
        THUMB_PX,
    )
    assert small == []
    beyond = page.locator("main *").evaluate_all(
        "all => all.filter((one) => one.checkVisibility() && one.getBoundingClientRect().right > innerWidth + 1)"
        ".map((one) => one.outerHTML.slice(0, 100))"
    )
    assert beyond == []
