"""The pages besides the overview, on a real daemon: every button does what it says, and what happens is seen."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.daemon.rule_site import fire, lines, rule_of, runs
from tests.daemon.site import until
from tests.page.conftest import Visitor
from tests.page.live import LiveSite
from tests.page.stage import DESKTOP, PHONE, needs_browser

pytestmark = [pytest.mark.slow, needs_browser]

SIZES = {"desktop": DESKTOP, "phone": PHONE}
SPENDS = """
import os, signal
from flyball.runtimes.tell import ask
ask([("X_FLYBALL_SPENT", "0.30")])
signal.pause()
"""
WORKER = Path(__file__).parents[1] / "daemon" / "session_worker.py"
HOSTILE = "<img src=x onerror=alert(1)>\x1b[31mred\x1b[0m \u202eturned"


def units(size: str, code: int) -> dict[str, Any]:
    """One of each kind, for tests of one size. Failures of different exit codes are different ones."""
    return {
        f"steady-{size}": {"command": ["sleep", "600"], "grace": "0.1s"},
        f"coder-{size}": {"command": ["sh", "-c", f"[ -e ok-{size} ] && exec sleep 600; echo failing; exit {code}"]},
        f"seen-{size}": {"command": ["sh", "-c", f"exit {code + 1}"]},
        f"broke-{size}": {"command": [sys.executable, "-c", SPENDS], "kind": "agent", "grace": "0.1s"},
        f"prints-{size}": {"command": ["sh", "-c", f"printf '%s\\n' '{HOSTILE}'; exec sleep 600"]},
        f"work-{size}": {
            "kind": "session",
            "command": [sys.executable, str(WORKER), "3", "0", "person"],
            "labels": {"user": size},
        },
    }


def rules(site: LiveSite, size: str) -> dict[str, Any]:
    """One that asks before it acts, and one that takes long."""
    pay = runs(site, f"echo paid >> paid-{size}")
    pay["actions"][0]["approve"] = {"text": "Pay?"}
    return {f"pay-{size}": pay, f"slow-{size}": runs(site, f"echo run >> slow-{size}; exec sleep 600")}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSite]:
    """A daemon with one of each."""
    place = LiveSite(tmp_path_factory.mktemp("pages"))
    defined = {name: unit for code, size in enumerate(SIZES, 1) for name, unit in units(size, 10 * code).items()}
    for unit in defined.values():
        unit["cwd"] = str(place.folder)
    defined_rules = {name: rule for size in SIZES for name, rule in rules(place, size).items()}
    place.write(defined, rules=defined_rules, budget={"per_unit": "0.30"})
    place.flyball("up", "-d")
    yield place
    place.clean()


@pytest.fixture(params=SIZES)
def size(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def at(visit: Visitor, site: LiveSite, size: str) -> Callable[..., Page]:
    """Go to a page, logged in."""

    def go(path: str, token: str = "") -> Page:
        address, login = site.login(token)
        page = visit(address, login, SIZES[size]).page
        page.goto(f"{address}/#/{path}")
        expect(page.locator("main h1")).to_be_visible()
        return page

    return go


def press(page: Page, label: str, *, asks: bool = False) -> None:
    """Press the button; where it asks, say yes."""
    page.locator("main").get_by_role("button", name=label, exact=True).first.click()
    if asks:
        page.get_by_role("dialog").get_by_role("button", name=label, exact=True).click()
    else:
        expect(page.get_by_role("dialog")).to_have_count(0)


def state(page: Page, word: str) -> None:
    """Wait until the head of the page says that."""
    expect(page.locator(".unit-head .state")).to_contain_text(word)


def test_orders_of_a_unit(at: Callable[..., Page], site: LiveSite, size: str) -> None:
    """Pause, resume, restart, stop, start and kill do what they say; those that end what runs ask first, and no leaves
    it running."""
    name = f"steady-{size}"
    [first] = until(lambda: site.running().get(name, []), "its process")
    page = at(f"unit/{name}")
    state(page, "running")
    page.get_by_role("button", name="Kill", exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text(name)
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert site.running()[name] == [first]
    press(page, "Pause", asks=True)
    site.wait(name, state="paused", running=False)
    state(page, "paused")
    press(page, "Resume")
    state(page, "running")
    [second] = until(lambda: site.running().get(name, []), "its process")
    press(page, "Restart", asks=True)
    until(lambda: site.running().get(name, [second]) != [second], "another process")
    state(page, "running")
    press(page, "Stop", asks=True)
    state(page, "stopped")
    site.wait(name, state="stopped", running=False)
    press(page, "Start")
    state(page, "running")
    press(page, "Kill", asks=True)
    state(page, "stopped")
    until(lambda: name not in site.running(), "its end")
    expect(page.locator(".exits button")).to_have_count(4)
    expect(page.locator(".timeline")).to_contain_text("stopped by admin")


def test_reset(at: Callable[..., Page], site: LiveSite, size: str) -> None:
    """A quarantined unit: the page says why and what to do; Reset lets it start again. Its place on the ladder, its
    exits and what it printed are there."""
    name = f"coder-{size}"
    site.wait(name, state="quarantined")
    page = at(f"unit/{name}")
    state(page, "quarantined")
    expect(page.locator(".unit-head .reason")).to_contain_text("6 failures")
    expect(page.locator(".exits button.error")).to_have_count(6)
    expect(page.locator(".ladder li[aria-current=step]")).to_contain_text("quarantine")
    page.get_by_label("Search the log").scroll_into_view_if_needed()
    expect(page.locator(".log")).to_contain_text("failing")
    (site.folder / f"ok-{size}").touch()
    page.locator(".unit-head button.primary").click()
    state(page, "running")
    expect(page.get_by_text("No failure is remembered.")).to_be_visible()


def test_acknowledge_and_snooze(at: Callable[..., Page], site: LiveSite, size: str) -> None:
    """A problem that is snoozed, then acknowledged, is marked so, with who did it."""
    name = f"seen-{size}"
    site.wait(name, state="quarantined")
    page = at(f"unit/{name}")
    press(page, "Snooze 1 h")
    expect(page.get_by_text("snoozed by admin, until it gets worse or")).to_be_visible()
    page.keyboard.press("a")
    expect(page.get_by_text("acknowledged by admin")).to_be_visible()
    [problem] = [one for one in site.ask("problems")["problems"] if one["unit"] == name]
    assert problem["acknowledged"]


def test_raise(at: Callable[..., Page], site: LiveSite, size: str) -> None:
    """A unit that is out of money goes on after a raise by a dollar; the curve and the limit follow."""
    name = f"broke-{size}"
    until(lambda: not site.status()[name]["running"] and site.status()[name]["budgets"], "its end")
    page = at(f"unit/{name}")
    expect(page.get_by_role("img", name="Spent $0.30 of $0.30")).to_be_visible()
    page.get_by_role("button", name="Raise by $1 and resume").click()
    expect(page.get_by_role("img", name="Spent $0.60 of $1.30")).to_be_visible()
    state(page, "running")


def test_session(at: Callable[..., Page], site: LiveSite, size: str) -> None:
    """A session that waits for a person: its checkpoint is shown, and it goes on from there; the list of sessions
    follows by itself (S1-51)."""
    name = f"work-{size}"
    until(lambda: site.ask("sessions", user=size, status="paused")["sessions"], "its pause")
    page = at(f"unit/{name}")
    expect(page.get_by_text("resumes 0 of 3")).to_be_visible()
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.get_by_label("Checkpoint 1", exact=True)).to_have_text("1")
    press(page, "Resume from here")
    expect(page.get_by_text("resumes 1 of 3")).to_be_visible()
    expect(page.get_by_role("table", name="Checkpoints, newest first").locator("tbody tr")).to_have_count(2)
    page.goto(page.url.partition("#")[0] + f"#/sessions?user={size}&status=paused")
    row = page.get_by_role("table", name="Sessions").locator("tbody tr").filter(has_text=name)
    expect(row).to_contain_text("1 of 3")
    site.ask("resume", units=[name])
    expect(row).to_have_count(0)


def test_questions_and_queue(at: Callable[..., Page], site: LiveSite, size: str) -> None:
    """A rule is fired from its page; what it asks is answered there; what waits is forgotten after asking."""
    page = at(f"unit/pay-{size}")
    press(page, "Fire")
    expect(page.get_by_text("Pay?").first).to_be_visible()
    page.locator(".asked").get_by_role("button", name="yes").click()
    until(lambda: lines(site, f"paid-{size}") == ["paid"], "its action")
    expect(page.locator(".asked")).to_have_count(0)
    slow = f"slow-{size}"
    for number in range(3):
        fire(site, slow, number)
    until(lambda: len(rule_of(site, slow)["queue"]) == 3 and lines(site, slow), "its queue")
    page = at(f"unit/{slow}")
    press(page, "Forget 2 firings", asks=True)
    until(lambda: len(rule_of(site, slow)["queue"]) == 1, "what is left")
    expect(page.get_by_role("button", name="Forget 2 firings")).to_have_count(0)


def test_rules(at: Callable[..., Page], site: LiveSite, size: str) -> None:
    """The list of rules fires, pauses and resumes them."""
    page = at(f"rules?q=pay-{size}")
    row = page.get_by_role("table", name="Rules").locator("tbody tr")
    expect(row).to_have_count(1)
    row.get_by_role("button", name="Pause").click()
    site.wait(f"pay-{size}", state="paused")
    row.get_by_role("button", name="Resume").click()
    site.wait(f"pay-{size}", held=False)
    row.get_by_role("button", name="Fire").click()
    until(lambda: [one for one in site.ask("questions")["questions"] if one["unit"] == f"pay-{size}"], "a question")
    site.ask("answer", unit=f"pay-{size}", answer="no")


def test_failures(at: Callable[..., Page], site: LiveSite, size: str) -> None:
    """Failures are there by fingerprint with their units; Reset forgets one. It comes back when it fails again."""
    name = f"seen-{size}"
    site.wait(name, state="quarantined")
    page = at(f"failures?q={name}")
    row = page.get_by_role("table", name="Failures, worst first").locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("quarantined")
    before = site.ask("events", limit=1)["last"]
    row.locator("[data-verb=reset]").click()
    until(lambda: [one for one in site.ask("events", unit=name, after=before)["events"] if one["event"] == "released"])


def test_budgets(at: Callable[..., Page], site: LiveSite, size: str) -> None:
    """A budget is raised from the list, by what is typed."""
    name = f"broke-{size}"
    until(lambda: site.status()[name]["budgets"], "what it spent")
    page = at(f"budgets?q={name}")
    row = page.get_by_role("table", name="Budgets, nearest to the limit first").locator("tbody tr")
    before = site.status()[name]["budgets"][0]["limit"]
    row.get_by_label("Raise by how much usd").fill("2.50")
    row.get_by_role("button", name="Raise and resume").click()
    until(lambda: site.status()[name]["budgets"][0]["limit"] == before + 2_500_000, "the raise")
    expect(row).to_contain_text("of it raised")


def test_journal_and_audit(at: Callable[..., Page], site: LiveSite, size: str) -> None:
    """What happens is added to the journal as it happens, filtered by unit and kind; standing still misses nothing. Who
    ordered it through what is in the audit trail, also what was refused."""
    name = f"prints-{size}"
    page = at(f"journal?unit={name}&kind=held")
    site.ask("pause", units=[name], note="one")
    expect(page.locator(".journal li")).to_have_count(1)
    expect(page.locator(".journal li").first).to_contain_text("paused by")
    page.get_by_role("button", name="Stand still").click()
    site.ask("resume", units=[name])
    site.ask("pause", units=[name], note="two")
    page.get_by_role("button", name="Go on").click()
    expect(page.locator(".journal li")).to_have_count(2)
    expect(page.locator(".journal li").first).to_contain_text("two")
    page.goto(page.url.partition("#")[0] + f"#/audit?q={name}")
    rows = page.get_by_role("table", name="Orders, newest first").locator("tbody tr")
    expect(rows.first).to_contain_text("pause")
    expect(rows.first).to_contain_text("socket")
    site.ask("resume", units=[name])
    expect(rows.first).to_contain_text("resume")


def test_who_may_only_look(visit: Visitor, site: LiveSite, size: str) -> None:
    """Who may only look sees everything and no order; one that is tried all the same is refused, and at once on the
    audit trail."""
    name = f"steady-{size}"
    site.flyball("token", "add", f"viewer-{size}", "--role", "look")
    address, login = site.login(f"viewer-{size}")
    window = visit(address, login, SIZES[size])
    window.expected = ("403",)
    page = window.page
    page.goto(f"{address}/#/unit/{name}")
    expect(page.get_by_text("with nothing against it")).to_be_visible()
    expect(page.locator("[data-verb]")).to_have_count(0)
    page.goto(f"{address}/#/audit?who=viewer-{size}")
    expect(page.get_by_text("Nobody ordered anything yet.")).to_be_visible()
    kill = "name => import('/static/api.js').then(api => api.order('kill', {units: [name]})).catch(error => error.code)"
    tried = page.evaluate(kill, name)
    assert tried == "forbidden"
    rows = page.get_by_role("table", name="Orders, newest first").locator("tbody tr")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("refused")


def test_hostile_output(at: Callable[..., Page], size: str) -> None:
    """What a unit prints is text on the page."""
    page = at(f"unit/prints-{size}")
    page.get_by_label("Search the log").scroll_into_view_if_needed()
    expect(page.locator(".log > div").first).to_have_text("<img src=x onerror=alert(1)>red \u2426turned")
    assert page.locator("main img").count() == 0


def test_unknown_unit(visit: Visitor, site: LiveSite, size: str) -> None:
    """A unit that nobody knows: the page says so, and which is meant."""
    address, login = site.login()
    window = visit(address, login, SIZES[size])
    window.expected = ("404",)
    window.page.goto(f"{address}/#/unit/stedy-{size}")
    expect(window.page.locator(".empty-title")).to_contain_text(f"no unit 'stedy-{size}'; did you mean steady-{size}")


@pytest.fixture(scope="module")
def stormy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSite]:
    """A daemon whose units all fail at once: circuits are open. After another start there is a storm too."""
    place = LiveSite(tmp_path_factory.mktemp("stormy"), FLYBALL_SAFETY__GLOBAL_FAILURE_THRESHOLD="1")
    del place.env["FLYBALL_CIRCUIT_BREAKER__FAILURE_THRESHOLD"]
    breaker = {"failure_threshold": 2, "min_units": 2, "recovery_timeout_seconds": 3600, "labels": ["provider"]}
    fails = {"command": ["sh", "-c", "exit 3"], "labels": {"provider": "x"}}
    place.write({"one": fails, "two": fails}, circuit_breaker=breaker)
    place.flyball("up", "-d")
    until(lambda: len(place.ask("status")["fleet"]["breakers"]) == 2, "open circuits")
    place.down()
    place.flyball("up", "-d")
    yield place
    place.clean()


def test_circuits_and_storm(visit: Visitor, stormy: LiveSite) -> None:
    """Circuits that are open are closed one by one; a storm is ended after asking; all failures are reset after
    asking, with how many there are."""
    address, login = stormy.login()
    page = visit(address, login, DESKTOP).page
    page.goto(f"{address}/#/failures")
    expect(page.get_by_text("a storm of failures paused it")).to_be_visible()
    circuits = page.get_by_role("table", name="Circuits that are not closed").locator("tbody tr")
    expect(circuits).to_have_count(2)
    circuits.filter(has_text="provider:x").get_by_role("button", name="Close").click()
    expect(circuits).to_have_count(1)
    press(page, "Reset all", asks=True)
    expect(page.get_by_text("No failure is remembered.")).to_be_visible()
    assert stormy.ask("failures")["failures"] == []
    press(page, "Resume the fleet", asks=True)
    expect(page.get_by_text("no storm")).to_be_visible()
    assert not stormy.ask("status")["fleet"]["storm"]
