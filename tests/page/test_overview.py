"""The overview in a real Chromium, on a server that speaks the daemon's part: what is shown, and what each button asks
of the server. That the daemon then does it is tested in test_daemon.py."""

import contextlib
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.page.conftest import Visitor
from tests.page.fake import CSRF, FakeServer, problem, row, serving
from tests.page.stage import DESKTOP, PHONE, needs_browser

pytestmark = [pytest.mark.slow, needs_browser]

SIZES = pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])

RESET = {"verb": "reset", "args": {"fingerprint": "7f3a9c00"}, "label": "Reset 7f3a9c00", "destructive": False}
STOP = {"verb": "stop", "args": {"units": ["nightly"]}, "label": "Stop it", "destructive": True}


def small_fleet() -> FakeServer:
    """One of each."""
    now = time.time()
    fake = FakeServer(
        [
            row("coder-3", state="quarantined", held=True, running=False, restarts=6, often=True, failures=6,
                error="SelectorNotFound", problem="coder-3:quarantined", spent=600_000, limit=2_000_000),
            row("nightly", state="stopped", running=False, kind="session", spent=2_030_000, limit=2_000_000,
                user="ann", problem="nightly:over_budget"),
            row("scraper", state="cooling", running=False, until=now + 50, restarts=3, error="Timeout", failures=3),
            row("triage-bot", user="bob", spent=900_000, limit=2_000_000),
            row("board", kind="graph", restarts=1),
        ]
    )  # fmt: skip
    fake.problems = [
        problem("coder-3", fingerprint="7f3a9c001122", error="SelectorNotFound", count=6, actions=[RESET]),
        problem("nightly", "over_budget", severity="warning", actions=[STOP]),
    ]
    return fake


@pytest.fixture
def fake() -> FakeServer:
    return small_fleet()


@pytest.fixture
def site(fake: FakeServer) -> Iterator[str]:
    with serving(fake) as address:
        yield address


def units(page: Any) -> list[str]:
    return [str(name) for name in page.locator(".unit-row").evaluate_all("rows => rows.map(row => row.dataset.unit)")]


def ordered(fake: FakeServer, page: Any, count: int = 1) -> list[tuple[str, dict[str, Any], str]]:
    """What was ordered, as soon as so many are there."""
    for _ in range(200):
        if len(fake.orders) >= count:
            break
        page.wait_for_timeout(25)
    return fake.orders


@SIZES
def test_what_is_shown(visit: Visitor, site: str, size: dict[str, int]) -> None:
    """State, place, tiles, what needs somebody with its reason and remedy, the units the worst first; the count is in
    the title; nothing is wider than the window (S3-36)."""
    page = visit(site, size=size).page
    expect(page).to_have_title("(2) flyball · prod-box")
    expect(page.locator(".pill")).to_have_text("degraded")
    expect(page.locator(".where")).to_contain_text("up 6 d")
    expect(page.locator(".where")).to_contain_text("circuit closed")
    tiles = {
        tile: page.locator(f'[data-tile="{tile}"] b').inner_text() for tile in ("running", "cooling", "quarantined")
    }
    assert tiles == {"running": "2", "cooling": "1", "quarantined": "1"}
    expect(page.locator('[data-tile="over_budget"] b')).to_have_text("1")
    expect(page.locator('[data-tile="spent_day"]')).to_contain_text("$3.53")
    first = page.locator(".problem").first
    for text in ("coder-3", "quarantined", "SelectorNotFound", "7f3a9c00", "6 failures in 41 min", "until it is reset"):
        expect(first).to_contain_text(text)
    assert units(page) == ["coder-3", "scraper", "board", "triage-bot", "nightly"]
    states = page.locator(".unit-row .state").all_inner_texts()
    assert states[0] == "quarantined"
    assert states[1].startswith("cooldown")
    assert states[3:] == ["running 1 h", "over budget"]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_often_stands_out(visit: Visitor, site: str) -> None:
    """Units that restart often are marked, in words and in colour (S3-36)."""
    page = visit(site).page
    marked = page.locator(".unit-row.often")
    expect(marked).to_have_count(1)
    expect(marked).to_contain_text("6 often")
    other = page.locator('[data-unit="board"]')
    ground = "row => getComputedStyle(row).backgroundColor"
    assert marked.evaluate(ground) != other.evaluate(ground)


@SIZES
def test_one_click(visit: Visitor, site: str, fake: FakeServer, size: dict[str, int]) -> None:
    """The first button of a problem does the one safe thing, with the CSRF header, and says that it is done."""
    page = visit(site, size=size).page
    page.get_by_role("button", name="Reset 7f3a9c00").click()
    assert ordered(fake, page) == [("reset", {"fingerprint": "7f3a9c00"}, CSRF)]
    expect(page.locator(".notice")).to_contain_text("Reset 7f3a9c00: done")


@SIZES
def test_destructive_asks(visit: Visitor, site: str, fake: FakeServer, size: dict[str, int]) -> None:
    """What ends something asks first, with the count and the units; the safe answer has the focus; Escape and Cancel
    order nothing."""
    page = visit(site, size=size).page
    page.get_by_role("button", name="Stop it").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("1 unit: nightly")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    page.get_by_role("button", name="Stop it").click()
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_have_count(0)
    assert fake.orders == []
    page.get_by_role("button", name="Stop it").click()
    dialog.get_by_role("button", name="Stop it").click()
    assert ordered(fake, page) == [("stop", {"units": ["nightly"]}, CSRF)]


def test_pause_all(visit: Visitor, site: str, fake: FakeServer) -> None:
    """Pause all asks with how many units run and which there are; a held fleet can be resumed instead."""
    page = visit(site).page
    page.get_by_role("button", name="Pause all").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("2 units of 5 run now")
    expect(dialog).to_contain_text("5 units: coder-3, nightly")
    dialog.get_by_role("button", name="Pause all").click()
    assert ordered(fake, page) == [("pause", {"all": True}, CSRF)]
    fake.fleet = {**fake.fleet, "held": True, "state": "paused"}
    fake.send(fake.frame([], full=False) | {"fleet": fake.fleet})
    expect(page.locator(".pill")).to_have_text("paused")
    page.get_by_role("button", name="Resume the fleet").click()
    assert ordered(fake, page, 2)[1] == ("resume", {}, CSRF)


QUIET = {
    "ack": ("Ack", ("acknowledge", {"problem": "coder-3:quarantined"}), {"acknowledged": True, "by": "ann"}),
    "snooze": (
        "Snooze 1 h",
        ("snooze", {"problem": "coder-3:quarantined", "seconds": 3600}),
        {"snoozed_until": time.time() + 3600, "by": "ann"},
    ),
}


@pytest.mark.parametrize("case", QUIET)
def test_quiet(visit: Visitor, site: str, fake: FakeServer, case: str) -> None:
    """What somebody knows of is counted no more, and is kept below with who said so."""
    label, (verb, args), change = QUIET[case]
    page = visit(site).page
    page.locator(".problem").first.get_by_role("button", name=label).click()
    assert ordered(fake, page) == [(verb, args, CSRF)]
    fake.problems = [fake.problems[1], fake.problems[0] | change]
    fake.change()
    expect(page).to_have_title("(1) flyball · prod-box")
    expect(page.get_by_role("heading", name="Needs you (1)")).to_be_visible()
    page.get_by_text("1 problem acknowledged or snoozed").click()
    expect(page.locator(".quiet-ones .problem")).to_contain_text("by ann")


def test_refused(visit: Visitor, site: str, fake: FakeServer) -> None:
    """What the daemon refuses is said with what to do, and stays until it is dismissed."""
    fake.answers["reset"] = lambda _: {
        "error": {"code": "nothing", "text": "no failure 7f3a9c00", "remedy": "Look at `flyball failures`."}
    }
    seen = visit(site)
    seen.expected = ("409",)
    seen.page.get_by_role("button", name="Reset 7f3a9c00").click()
    notice = seen.page.locator(".notice.bad")
    expect(notice).to_contain_text("no failure 7f3a9c00")
    expect(notice).to_contain_text("Look at `flyball failures`.")
    notice.get_by_role("button", name="Dismiss").click()
    expect(notice).to_have_count(0)


def test_live(visit: Visitor, site: str, fake: FakeServer) -> None:
    """A change of a unit moves its row; a new one comes, and one that is gone goes, without a reload."""
    page = visit(site).page
    expect(page.locator(".unit-row")).to_have_count(5)
    fake.change(row("triage-bot", state="halted", held=True, running=False), row("aa-new"), gone=["board"])
    expect(page.locator('[data-unit="triage-bot"] .state')).to_have_text("halted")
    assert units(page) == ["coder-3", "triage-bot", "scraper", "aa-new", "nightly"]
    expect(page.locator('[data-tile="halted"] b')).to_have_text("1")


FILTERS = {
    "coder": ["coder-3"],
    "TIMEOUT": ["scraper"],
    "state:quarantined": ["coder-3"],
    "state:quarantined,cooling": ["coder-3", "scraper"],
    "-state:healthy": ["coder-3", "scraper", "nightly"],
    "kind:graph": ["board"],
    "user:ann": ["nightly"],
    "is:held": ["coder-3"],
    "is:running": ["board", "triage-bot"],
    "is:over": ["nightly"],
    "is:often": ["coder-3"],
    "is:problem -is:held": ["nightly"],
    "is:nonsense": [],
    "no-such": [],
}


def test_filter(visit: Visitor, site: str) -> None:
    """The filter takes words, fields and their negation; it is in the address, and a reload keeps it."""
    page = visit(site).page
    box = page.get_by_role("searchbox")
    for text, found in FILTERS.items():
        box.fill(text)
        expect(page.locator(".unit-row")).to_have_count(len(found))
        assert units(page) == found, text
    expect(page.get_by_text("No unit is like that")).to_be_visible()
    box.fill("user:bob")
    expect(page).to_have_url(re.compile("q=user%3Abob"))
    page.reload()
    expect(page.locator(".unit-row")).to_have_count(1)
    expect(box).to_have_value("user:bob")
    expect(page.get_by_role("heading", name="Units 1 of 5")).to_be_visible()


SORTS = {
    "unit": ["board", "coder-3", "nightly", "scraper", "triage-bot"],
    "restarts": ["coder-3", "scraper", "board", "nightly", "triage-bot"],
    "budget": ["nightly", "triage-bot", "coder-3", "board", "scraper"],
    "kind": ["board", "nightly", "coder-3", "scraper", "triage-bot"],
}


@pytest.mark.parametrize("column", SORTS)
def test_sort(visit: Visitor, site: str, column: str) -> None:
    """Each heading sorts by its column, once more the other way round; that is in the address, and told to screen
    readers."""
    page = visit(site).page
    heading = page.get_by_role("columnheader", name=column)
    heading.get_by_role("button").click()
    expect(heading).to_have_attribute("aria-sort", "ascending")
    assert units(page) == SORTS[column]
    heading.get_by_role("button").click()
    expect(heading).to_have_attribute("aria-sort", "descending")
    assert units(page) == SORTS[column][::-1]
    expect(page).to_have_url(re.compile(f"sort=-{column}"))


def test_keyboard(visit: Visitor, site: str, fake: FakeServer) -> None:
    """/ filters, j and k move, r resets, a acknowledges, s snoozes, Enter opens, g goes, ? helps. Keys that are typed
    into the filter are only text."""
    seen = visit(site)
    seen.expected = ("404",)  # the unit's own page asks for more than is served here
    page = seen.page
    expect(page.locator(".unit-row")).to_have_count(5)
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("jkras")
    expect(page.get_by_role("searchbox")).to_have_value("jkras")
    page.get_by_role("searchbox").fill("")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    expect(page.locator('[data-unit="coder-3"]')).to_have_attribute("aria-current", "true")
    expect(page.locator('[data-unit="coder-3"] a')).to_be_focused()
    page.keyboard.press("j")
    expect(page.locator('[data-unit="scraper"]')).to_have_attribute("aria-current", "true")
    page.keyboard.press("r")
    expect(page.locator(".notice")).to_contain_text("scraper has no problem")
    page.keyboard.press("k")
    for count, (key, verb) in enumerate((("r", "reset"), ("a", "acknowledge"), ("s", "snooze")), 1):
        page.keyboard.press(key)
        assert ordered(fake, page, count)[-1][0] == verb
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("next unit")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("Enter")
    page.wait_for_url("**/#/unit/coder-3")
    page.keyboard.press("g")
    page.keyboard.press("o")
    page.wait_for_url("**/#/")


def test_chosen_keeps_focus(visit: Visitor, site: str, fake: FakeServer) -> None:
    """The row that was chosen by key keeps the focus when it moves to another place."""
    page = visit(site).page
    expect(page.locator(".unit-row")).to_have_count(5)
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator('[data-unit="scraper"] a')).to_be_focused()
    fake.change(row("scraper", state="finished", running=False))
    expect(page.locator('[data-unit="scraper"] .state')).to_have_text("finished")
    assert units(page)[-1] == "scraper"
    expect(page.locator('[data-unit="scraper"] a')).to_be_focused()


def test_look_only(visit: Visitor, fake: FakeServer) -> None:
    """Who may only look is offered nothing that orders."""
    fake.role = "look"
    with serving(fake) as site:
        page = visit(site).page
        expect(page.locator(".problem")).to_have_count(2)
        expect(page.locator("[data-verb]")).to_have_count(0)
        expect(page.get_by_role("link", name="Why?").first).to_be_visible()
        page.keyboard.press("j")
        for key in "ras":
            page.keyboard.press(key)
        assert fake.orders == []


def test_operate(visit: Visitor, fake: FakeServer) -> None:
    """Who may operate is not offered what only an admin may."""
    fake.role = "operate"
    raised = {"verb": "raise", "args": {"unit": "nightly", "more": "1.00"}, "label": "Raise", "destructive": False}
    fake.problems[1]["actions"] = [raised]
    with serving(fake) as site:
        page = visit(site).page
        expect(page.get_by_role("button", name="Reset 7f3a9c00")).to_be_visible()
        expect(page.get_by_role("button", name="Raise")).to_have_count(0)


@SIZES
def test_daemon_gone(visit: Visitor, fake: FakeServer, size: dict[str, int]) -> None:
    """A page whose daemon is gone says so at once, in the title too, and offers nothing that cannot be done."""
    with contextlib.ExitStack() as stack:
        site = stack.enter_context(serving(fake))
        seen = visit(site, size=size)
        page = seen.page
        expect(page.locator(".unit-row").first).to_be_visible()
        seen.expected = ("ERR_CONNECTION", "ERR_EMPTY", "ERR_INCOMPLETE")
        stack.close()
        gone = time.monotonic()
        expect(page.get_by_role("alert")).to_contain_text("The daemon does not answer.")
        assert time.monotonic() - gone < 3
        expect(page).to_have_title("(!) flyball · prod-box")
        expect(page.locator(".pill")).to_have_text("no daemon")
        buttons = page.locator("[data-verb]")
        assert buttons.count() > 3
        assert buttons.evaluate_all("all => all.every(one => one.disabled)")


def test_daemon_back(visit: Visitor, site: str, fake: FakeServer) -> None:
    """When it is back, the page is live again by itself, with what is true now."""
    seen = visit(site)
    seen.expected = ("ERR_CONNECTION", "ERR_EMPTY", "ERR_INCOMPLETE")
    page = seen.page
    expect(page.locator(".unit-row")).to_have_count(5)
    del fake.rows["board"]
    fake.hang_up()
    expect(page.locator(".unit-row")).to_have_count(4)
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.get_by_role("button", name="Reset 7f3a9c00")).to_be_enabled()


def test_daemon_hangs(visit: Visitor, site: str, fake: FakeServer) -> None:
    """A daemon that keeps the line open and says nothing is gone, too: within a few of its own signs of life."""
    seen = visit(site, None)
    seen.page.clock.install()
    seen.page.goto(site)
    expect(seen.page.locator(".unit-row")).to_have_count(5)
    fake.silent = True
    seen.page.clock.fast_forward(9_000)
    expect(seen.page.get_by_role("alert")).to_have_count(0)
    seen.page.clock.run_for(5_000)
    expect(seen.page.get_by_role("alert")).to_contain_text("The daemon does not answer.")


def test_hidden_tab(visit: Visitor, site: str, fake: FakeServer) -> None:
    """A tab that nobody sees gives its connection back after a while, and its title still counts; when it is seen again
    it is live."""
    fake.answers["problems"] = lambda _: {"problems": fake.problems, "at": time.time()}
    page = visit(site, None).page
    page.clock.install()
    page.add_init_script("""
      window.away = false;
      Object.defineProperty(document, "hidden", {get: () => window.away});
      window.turn = (away) => {
        window.away = away;
        document.dispatchEvent(new Event("visibilitychange"));
      };
    """)
    page.goto(site)
    expect(page).to_have_title("(2) flyball · prod-box")
    page.evaluate("turn(true)")
    for _ in range(8):
        fake.beat()
        page.wait_for_timeout(100)
        page.clock.run_for(4_000)
    fake.problems = fake.problems[:1]
    fake.change(gone=["board"])
    page.clock.run_for(11_000)
    expect(page).to_have_title("(1) flyball · prod-box")
    expect(page.locator(".unit-row")).to_have_count(5)
    page.evaluate("turn(false)")
    page.clock.run_for(1_000)
    expect(page.locator(".unit-row")).to_have_count(4)


def test_login_over(visit: Visitor, site: str, fake: FakeServer) -> None:
    """A login that is over leads to the login form."""
    seen = visit(site)
    expect(seen.page.locator(".unit-row")).to_have_count(5)
    seen.expected = ("401",)
    fake.logged_in = False
    fake.hang_up()
    expect(seen.page.get_by_role("heading", name="Log in")).to_be_visible()


def test_nothing_there(visit: Visitor) -> None:
    """A fleet without units says what to do; nothing needs anybody."""
    with serving(FakeServer()) as site:
        page = visit(site).page
        expect(page.get_by_text("There are no units yet")).to_be_visible()
        expect(page.get_by_text("flyball run --name first")).to_be_visible()
        expect(page.get_by_text("Nothing needs you.")).to_be_visible()
        expect(page.get_by_text("Nothing was spent.")).to_be_visible()
        expect(page).to_have_title("flyball · prod-box")


def test_unknown_page(visit: Visitor, site: str) -> None:
    """An address that leads nowhere says so, and leads back."""
    page = visit(site, "/#/no/such?x=%ZZ").page
    page.get_by_role("link", name="Go to the overview").click()
    expect(page.locator(".unit-row")).to_have_count(5)


HOSTILE = '<img src=x onerror="document.title=1">\'"&lt;/td>'


@SIZES
def test_hostile_texts(visit: Visitor, size: dict[str, int]) -> None:
    """What units say is text, however it is made and however long it is."""
    fake = FakeServer([row(HOSTILE, error=HOSTILE, reason="x" * 10_000, user=HOSTILE), row("\u202edrawkcab")])
    fake.problems = [
        problem(HOSTILE, text="y" * 10_000, remedy=HOSTILE, error=HOSTILE, actions=[RESET | {"label": HOSTILE}])
    ]
    with serving(fake) as site:
        seen = visit(site, size=size)
        seen.expected = ("404",)  # as above
        page = seen.page
        expect(page.locator(".unit-row")).to_have_count(2)
        expect(page.locator(".problem b").first).to_have_text(HOSTILE)
        assert page.locator("#app img").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.locator(".unit-row a").first.click()
        expect(page).to_have_url(
            site + "/#/unit/%3Cimg%20src%3Dx%20onerror%3D%22document.title%3D1%22%3E'%22%26lt%3B%2Ftd%3E"
        )


@SIZES
def test_many(visit: Visitor, size: dict[str, int]) -> None:
    """Of ten thousand units only those in sight are in the document, wherever one scrolls to."""
    fake = FakeServer([row(f"unit-{number:05}") for number in range(10_000)])
    with serving(fake) as site:
        page = visit(site, size=size).page
        expect(page.locator('[data-unit="unit-00000"]')).to_be_visible()
        assert page.locator(".unit-row").count() < 100
        page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
        expect(page.locator('[data-unit="unit-09999"]')).to_be_visible()
        assert page.locator(".unit-row").count() < 100
        page.get_by_role("searchbox").fill("unit-0500")
        expect(page.locator(".unit-row")).to_have_count(10)
        expect(page.locator('[data-unit="unit-05000"]')).to_be_visible()


def test_themes(visit: Visitor, site: str) -> None:
    """The system's theme is taken unless one is chosen here, and that choice is kept."""
    page = visit(site, color_scheme="light").page
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    expect(page.locator(".unit-row")).to_have_count(5)
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    page.get_by_role("button", name="Theme: system").click()
    assert page.evaluate(ground) == "rgb(13, 17, 23)"
    page.reload()
    expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
    assert page.evaluate(ground) == "rgb(13, 17, 23)"


def test_times(visit: Visitor, site: str) -> None:
    """Times are relative, and exact in their title."""
    page = visit(site).page
    when = page.locator(".problem time").first
    expect(when).to_have_text("14 min ago")
    assert len(str(when.get_attribute("title"))) == len("2026-11-16 02:14:07")
