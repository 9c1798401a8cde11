"""The pages besides the overview, drawn from answers that are given: what they show of them, whatever the texts are."""

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from tests.page.conftest import Visitor
from tests.page.fake import FakeServer, row, serving
from tests.page.sample_answers import FINGERPRINT, fake_with, rule, why
from tests.page.stage import DESKTOP, PHONE, needs_browser

pytestmark = [pytest.mark.slow, needs_browser]

LISTS = ("failures", "sessions", "budgets", "rules", "journal", "audit")
SIZES = [pytest.param(DESKTOP, id="desktop"), pytest.param(PHONE, id="phone")]
HOSTILE = {
    "html": '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script></pre></td>&amp;<b>bold</b>',
    "quotes": """'"`${window.hacked=1}` {{7*7}} \\u0041 %s %n ../../etc""",
    "long": "x" * 10_000,
    "rtl": "abc \u202eltr eht snrut siht\u202c \u05d0\u05d1\u05d2 \u2067isolated",
    "ansi": "\x1b[31mred\x1b[0m \x1b]0;title\x07 bell\x07 back\x08 nul\x00 \x1b[2J\x9b31m",
}
JOURNAL = "**/api/v1/journal/stream*"
QUIET = "retry: 60000\n\n"
"""A journal to which nothing is added."""


@pytest.fixture
def shown(visit: Visitor) -> Iterator[Callable[..., Page]]:
    """Show a page of a fake server."""
    with contextlib.ExitStack() as servers:

        def begin(
            fake: FakeServer, path: str, size: dict[str, int] = DESKTOP, *, journal: str = QUIET, expected: str = ""
        ) -> Page:
            fake.files["/blank"] = ("text/html", b'<link rel="icon" href="data:,">')
            address = servers.enter_context(serving(fake))
            window = visit(address, "/blank", size)  # the journal's stream is made before anybody listens
            window.expected = (expected,) if expected else ()
            window.page.route(JOURNAL, lambda route: route.fulfill(content_type="text/event-stream", body=journal))
            window.page.goto(f"{address}/#/{path}")
            return window.page

        yield begin


def settled(page: Page) -> Page:
    """When every answer is there."""
    expect(page.locator("main h1")).to_be_visible()
    expect(page.locator("main [aria-busy=true]")).to_have_count(0)
    return page


def asked(fake: FakeServer, verb: str) -> list[Any]:
    """Has all that will be asked of this verb from now on."""
    calls: list[Any] = []
    answer = fake.answers[verb]

    def count(args: Any) -> Any:
        calls.append(args)
        return answer(args)

    fake.answers[verb] = count
    return calls


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text(shown: Callable[..., Page], text: str, size: dict[str, int]) -> None:
    """Whatever units, errors, logs and people write is shown as text: nothing of it becomes a part of the page, makes
    it wider than the screen, or breaks it. That holds for a unit's name too."""
    name = text[:180]
    page = shown(fake_with(name, text), f"unit/{quote(name, safe='')}", size)
    for path in (None, *LISTS):
        if path is not None:
            page.evaluate("path => { location.hash = path }", f"#/{path}")
            expect(page.locator("main h1")).to_have_text(path.capitalize())
        settled(page)
        if path is None:
            page.get_by_label("Search the log").scroll_into_view_if_needed()
            expect(page.locator(".log")).to_contain_text("end")
        assert page.evaluate("window.hacked") is None
        assert page.locator("main img, main script, main b:text-is('bold')").count() == 0
        expect(page.get_by_text("This page has a fault")).to_have_count(0)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), path
        seen = page.locator("main").inner_text()
        assert not any(char in seen for char in "\x00\x07\x08\x1b\x9b\u202e\u2067")


@pytest.mark.parametrize("size", SIZES)
def test_unknown_unit(shown: Callable[..., Page], size: dict[str, int]) -> None:
    """A unit that is not there: the page says so, and where to go on."""
    fake = fake_with("coder-3")
    fake.answers.pop("why")
    page = shown(fake, "unit/nobody", size, expected="404")
    expect(page.locator(".empty-title")).to_contain_text("no ")
    expect(page.get_by_role("link", name="Go to the overview")).to_be_visible()
    expect(page.locator("main [data-verb]")).to_have_count(0)


def test_unit_page(shown: Callable[..., Page]) -> None:
    """A unit's page has its exits, its place on the ladder, its spend, checkpoints, resumes, opinions, stack trace."""
    page = settled(shown(fake_with("coder-3"), "unit/coder-3"))
    exits = page.locator(".exits button")
    expect(exits).to_have_count(60)
    exits.nth(0).click()
    expect(page.locator(".exit-text")).to_contain_text("error, exit 3, TypeError, 7f3a9c21, after 12 s")
    here = page.locator(".ladder li[aria-current=step]")
    expect(here).to_contain_text("15 s")
    expect(here).to_contain_text("you are here")
    expect(page.locator(".ladder li > span")).to_have_text(["1 s", "5 s", "15 s", "5 min", "30 min", "quarantine"])
    expect(page.get_by_text("resumes 1 of 3")).to_be_visible()
    expect(page.get_by_role("img", name="Spent $1.92 of $2.00")).to_be_visible()
    expect(page.locator(".curve canvas")).to_be_visible()
    expect(page.get_by_role("table", name="Policies with reasons").locator("tbody tr")).to_contain_text("hold")
    expect(page.locator(".content")).to_have_text("proceed, with nothing against it: cooldown")
    expect(page.get_by_label("Stack trace")).to_contain_text("Traceback")


def test_log_is_searched(shown: Callable[..., Page]) -> None:
    """Searching the log leaves the lines that have the text, marked, and is in the address."""
    page = settled(shown(fake_with("coder-3"), "unit/coder-3"))
    page.get_by_label("Search the log").fill("typeerr")
    expect(page.locator(".log > div")).to_have_text(["TypeError"])
    expect(page.locator(".log mark")).to_have_text("TypeErr")
    assert "log=typeerr" in page.url


def test_log_follows(shown: Callable[..., Page]) -> None:
    """The log is asked for while it is looked at, and its end is in sight until somebody scrolls up."""
    fake = fake_with("coder-3")
    lines = [f"line {number}" for number in range(200)]
    fake.answers["logs"] = lambda _: {"unit": "coder-3", "lines": lines, "at": 0}
    page = settled(shown(fake, "unit/coder-3"))
    page.get_by_label("Search the log").scroll_into_view_if_needed()
    expect(page.locator(".log")).to_be_visible()
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    expect(page.get_by_text("line 199", exact=True)).to_be_in_viewport()
    lines.append("the newest")
    expect(page.get_by_text("the newest")).to_be_in_viewport()
    page.locator(".log").evaluate("box => { box.scrollTop = 0 }")
    expect(page.get_by_label("follow")).not_to_be_checked()
    lines.append("one more")
    expect(page.get_by_text("last 202 lines")).to_be_visible()
    expect(page.get_by_text("one more")).not_to_be_in_viewport()


@pytest.mark.parametrize(
    ("role", "absent", "there"),
    [
        ("look", ["reset", "start", "stop", "pause", "resume", "answer", "raise", "acknowledge", "trigger"], []),
        ("operate", ["raise"], ["reset", "answer", "acknowledge", "resume", "forget_firings"]),
        ("admin", [], ["raise", "reset"]),
    ],
)
def test_roles(shown: Callable[..., Page], role: str, absent: Sequence[str], there: Sequence[str]) -> None:
    """Who may not order something does not see its button, on any page."""
    page = settled(shown(fake_with("coder-3", role=role), "unit/coder-3"))
    for verb in there:
        expect(page.locator(f"main [data-verb={verb}]").first).to_be_visible()
    for path in ("unit/coder-3", *LISTS[:4]):
        page.evaluate("path => { location.hash = path }", f"#/{path}")
        settled(page)
        for verb in absent:
            expect(page.locator(f"main [data-verb={verb}]")).to_have_count(0)


def test_asks_when_the_unit_changed(shown: Callable[..., Page]) -> None:
    """A page asks anew when the board says that its unit changed, at most once a second; not when another one did."""
    fake = fake_with("coder-3")
    calls = asked(fake, "why")
    page = settled(shown(fake, "unit/coder-3"))
    expect(page.locator(".unit-head .state")).to_have_text("quarantined")
    before = len(calls)
    for number in range(50):
        fake.change(row("other", restarts=number))
    fake.change(row("coder-3", state="stopped", running=False, restarts=0))
    with page.expect_response(lambda response: "/why" in response.url):
        for number in range(1, 50):
            fake.change(row("coder-3", state="stopped", running=False, restarts=number))
    expect(page.locator(".unit-head .state")).to_have_text("stopped")
    page.wait_for_load_state("networkidle")
    assert 1 <= len(calls) - before <= 3


@pytest.mark.parametrize(
    ("path", "label", "word"),
    [
        ("failures", "Filter failures", "nothing-like-it"),
        ("sessions", "Filter sessions", "coder"),
        ("budgets", "Filter budgets", "tokens"),
        ("rules", "Filter rules", "coder"),
        ("audit", "Filter the audit trail", "reset"),
        ("journal", "Filter the journal", "exited"),
    ],
)
def test_filter_is_in_the_address(shown: Callable[..., Page], path: str, label: str, word: str) -> None:
    """What is filtered for is in the address: the same page is there after a reload, and `/` goes to the filter."""
    page = settled(shown(fake_with("coder-3"), path))
    page.keyboard.press("/")
    expect(page.get_by_label(label)).to_be_focused()
    page.keyboard.type(word)
    left = page.locator("tbody tr, .journal li").count()
    assert f"q={word}" in page.url
    page.reload()
    settled(page)
    expect(page.get_by_label(label)).to_have_value(word)
    expect(page.locator("main .panel").last.locator("tbody tr, .journal li")).to_have_count(
        left if path != "failures" else 0
    )


@pytest.mark.parametrize(("key", "title"), [("f", "Failures"), ("s", "Sessions"), ("b", "Budgets"), ("a", "Audit")])
def test_keys(shown: Callable[..., Page], key: str, title: str) -> None:
    """`g` and a letter go to a page."""
    page = settled(shown(fake_with("coder-3"), "rules"))
    page.keyboard.press("g")
    page.keyboard.press(key)
    expect(page.locator("main h1")).to_have_text(title)


def test_order_asks_with_the_count(shown: Callable[..., Page]) -> None:
    """Resetting a failure of two units, and resetting all, ask first and name the units; no is no."""
    fake = fake_with("coder-3")
    page = settled(shown(fake, "failures"))
    for label, args in (("Reset 7f3a9c21", {"fingerprint": FINGERPRINT}), ("Reset all", {"all": True})):
        page.get_by_role("button", name=label).click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("2 units: coder-3, other")
        dialog.get_by_role("button", name="Cancel").click()
        assert fake.orders == []
        page.get_by_role("button", name=label).click()
        dialog.get_by_role("button", name=label).click()
        expect(page.locator(".notice").last).to_contain_text("done")
        assert [(verb, said) for verb, said, _ in fake.orders] == [("reset", args)]
        fake.orders.clear()


def test_wrong_amount(shown: Callable[..., Page]) -> None:
    """An amount that is none cannot be sent."""
    page = settled(shown(fake_with("coder-3"), "budgets"))
    line = page.get_by_label("Raise by how much usd")
    for wrong in ("", "0", "-1", "1e9", "a"):
        line.fill(wrong)
        expect(page.get_by_text("a number above 0")).to_be_visible()
    line.fill("2.50")
    expect(page.get_by_role("button", name="Raise and resume")).to_have_count(2)


def test_checkpoint_is_shown(shown: Callable[..., Page]) -> None:
    """What is in a checkpoint can be looked at."""
    fake = fake_with("coder-3")
    content = {"id": "1", "stage": "s", "at": 0, "version": 1, "bytes": 9, "form": "json", "content": {"stage": 4}}
    fake.answers["session"] = lambda _: {"checkpoint": content}
    page = settled(shown(fake, "unit/coder-3"))
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.get_by_label("Checkpoint 1")).to_have_text(json.dumps({"stage": 4}, indent=2))
    page.get_by_role("button", name="Hide").click()
    expect(page.get_by_label("Checkpoint 1")).to_have_count(0)


def test_old_answers_stay_without_a_daemon(shown: Callable[..., Page]) -> None:
    """When an answer cannot be had any more, what was seen last stays, with the error; no order can be given."""
    fake = fake_with("coder-3")
    page = settled(shown(fake, "failures", expected="net::ERR_EMPTY_RESPONSE"))
    fake.answers["failures"] = lambda _: 1 / 0
    fake.change(row("coder-3", restarts=9))
    expect(page.locator("main .empty-title")).to_contain_text("the daemon does not answer")
    expect(page.get_by_role("table", name="Failures, worst first")).to_contain_text("TypeError")


def test_journal_says_what_is_gone(shown: Callable[..., Page]) -> None:
    """What comes is added, the newest first, each once; of what the journal does not keep any more, it is said."""
    fake = fake_with("coder-3")
    first = fake.answers["events"]({})["events"][0]
    told = [{**first, "seq": seq, "text": f"happened {seq}"} for seq in (7, 20, 21)]
    stream = QUIET + 'event: gap\ndata: {"from": 8, "to": 19}\n\n'
    stream += "".join(f"id: {one['seq']}\nevent: entry\ndata: {json.dumps(one)}\n\n" for one in told)
    page = settled(shown(fake, "journal", journal=stream))
    expect(page.locator(".journal li")).to_have_count(3)
    expect(page.locator(".journal li").first).to_contain_text("happened 21")
    expect(page.get_by_text("Entries 8 to 19 are not kept any more.")).to_be_visible()
    page.locator(".journal summary").first.click(position={"x": 5, "y": 8})
    expect(page.locator(".journal pre").first).to_contain_text('"error": "TypeError"')


@pytest.mark.parametrize(("told", "notices"), [(["coder-3"], 1), ([], 2)], ids=["by-the-daemon", "by-nobody"])
def test_start_of_what_no_settings_name(shown: Callable[..., Page], told: list[str], notices: int) -> None:
    """What no settings name, the daemon cannot start: whoever presses Start is told so."""
    fake = fake_with("coder-3")
    fake.problems = []
    fake.change(row("coder-3", state="finished", running=False))
    said = why("coder-3", state="finished", held=False, reasons=[])
    fake.answers |= {"why": lambda _: said, "start": lambda _: {"told": told}}
    page = settled(shown(fake, "unit/coder-3"))
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.locator(".notice")).to_have_count(notices)
    assert page.get_by_text("whoever ran it has to start it").count() == notices - 1


def test_a_rule_in_quarantine(shown: Callable[..., Page]) -> None:
    """It is let go by what its problem names: a resume would be refused."""
    fake = fake_with("shop")
    fake.answers["rules"] = lambda _: {"rules": [rule("shop", state="quarantined", held=True)], "at": 0}
    page = settled(shown(fake, "rules"))
    line = page.get_by_role("row", name="shop")
    expect(line.get_by_role("button", name="Reset 7f3a9c21")).to_be_visible()
    expect(line.get_by_role("button", name="Resume")).to_have_count(0)


def test_a_session_that_is_done(shown: Callable[..., Page]) -> None:
    """It can be begun anew; there is nothing to pause, to stop or to pay for."""
    fake = fake_with("digest")
    done: dict[str, Any] = {"kind": "session", "state": "finished", "held": False, "running": False}
    fake.change(row("digest", **done))
    fake.answers["why"] = lambda _: why("digest", **done)
    page = settled(shown(fake, "unit/digest"))
    orders = page.get_by_role("group", name="Orders")
    expect(orders.get_by_role("button", name="Start")).to_be_visible()
    expect(page.get_by_role("button", name="Pause", exact=True)).to_have_count(0)
    expect(page.get_by_role("button", name="Stop", exact=True)).to_have_count(0)
    expect(page.get_by_role("button", name="Raise by $1")).to_have_count(0)
