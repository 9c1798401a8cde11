"""The overview on a real daemon: every button does what it says to real processes, and what happens is seen at once."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.daemon.rule_site import fire, lines, runs
from tests.daemon.site import until
from tests.page.conftest import Visitor
from tests.page.live import LiveSite
from tests.page.stage import DESKTOP, PHONE, Visit, needs_browser

pytestmark = [pytest.mark.slow, needs_browser]

SIZES = {"desktop": DESKTOP, "phone": PHONE}
SPENDS = """
import signal
from flyball.runtimes.tell import ask
ask([("X_FLYBALL_SPENT", "0.30")])
signal.pause()
"""


def units(site: LiveSite, size: str, code: int) -> dict[str, Any]:
    """One for each button. Failures of different exit codes are different ones."""
    works = f"[ -e ok-{size} ] && exec sleep 600"
    found: dict[str, Any] = {
        f"steady-{size}": {"command": ["sleep", "600"], "grace": "0.1s"},
        f"coder-{size}": {"command": ["sh", "-c", f"{works}; exit {code}"], "labels": {"user": size}},
        f"known-{size}": {"command": ["sh", "-c", f"exit {code + 1}"]},
        f"later-{size}": {"command": ["sh", "-c", f"exit {code + 2}"]},
        f"stays-{size}": {"command": ["sh", "-c", f"exit {code + 3}"]},
        f"broke-{size}": {"command": [sys.executable, "-c", SPENDS], "kind": "agent", "grace": "0.1s"},
    }
    return {name: unit | {"cwd": str(site.folder)} for name, unit in found.items()}


def asking(site: LiveSite, size: str) -> dict[str, Any]:
    pay = runs(site, f"echo paid >> paid-{size}")
    pay["actions"][0]["approve"] = {"text": "Pay?"}
    return pay


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSite]:
    """A daemon with one for each button and size."""
    place = LiveSite(tmp_path_factory.mktemp("overview"))
    defined = {name: unit for code, size in enumerate(SIZES, 1) for name, unit in units(place, size, 10 * code).items()}
    asks = {f"pay-{size}": asking(place, size) for size in SIZES}
    place.write(defined, rules=asks, budget={"per_unit": "0.30"})
    place.flyball("up", "-d")
    yield place
    place.clean()


@pytest.fixture(params=SIZES)
def size(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def enter(visit: Visitor, site: LiveSite, size: str) -> Callable[..., Visit]:
    """Log in, and wait for the units."""

    def go(token: str = "") -> Visit:
        address, login = site.login(token)
        seen = visit(address, login, SIZES[size])
        expect(seen.page.locator(".unit-row").first).to_be_visible()
        return seen

    return go


def press(page: Page, unit: str, label: str) -> None:
    """Press a button of a unit's problem."""
    problem = page.locator(".problem").filter(has=page.get_by_role("link", name=unit, exact=True))
    problem.get_by_role("button", name=label).click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def in_row(page: Page, unit: str) -> Any:
    """The unit's row, brought into sight by the filter."""
    page.get_by_role("searchbox").fill(unit)
    return page.locator(f'[data-unit="{unit}"]')


def problem_of(site: LiveSite, unit: str) -> dict[str, Any]:
    found = [one for one in site.ask("problems")["problems"] if one["unit"] == unit]
    return found[0] if found else {}


def test_reset(enter: Callable[..., Visit], site: LiveSite, size: str) -> None:
    """One click on the problem of a quarantined unit, and it starts again; the problem is gone, and the row runs."""
    name = f"coder-{size}"
    site.wait(name, state="quarantined")
    page = enter().page
    row = in_row(page, name)
    expect(row.locator(".state")).to_have_text("quarantined")
    (site.folder / f"ok-{size}").touch()
    press(page, name, "Reset")
    expect(row.locator(".state")).to_contain_text("running")
    expect(page.locator(f'[data-problem^="{name}:"]')).to_have_count(0)
    site.wait(name, held=False, running=True)


def test_acknowledge(enter: Callable[..., Visit], site: LiveSite, size: str) -> None:
    """Ack: it is kept below, with who said so, and is counted no more."""
    name = f"known-{size}"
    site.wait(name, state="quarantined")
    page = enter().page
    press(page, name, "Ack")
    page.get_by_text("acknowledged or snoozed").click()
    expect(page.locator(f'.quiet-ones [data-problem^="{name}:"]')).to_contain_text("Acknowledged by admin")
    assert problem_of(site, name)["acknowledged"]


def test_snooze(enter: Callable[..., Visit], site: LiveSite, size: str) -> None:
    """Snooze: quiet for an hour."""
    name = f"later-{size}"
    site.wait(name, state="quarantined")
    page = enter().page
    press(page, name, "Snooze 1 h")
    page.get_by_text("acknowledged or snoozed").click()
    expect(page.locator(f'.quiet-ones [data-problem^="{name}:"]')).to_contain_text("Snoozed by admin until")
    assert problem_of(site, name)["snoozed_until"]


def test_raise(enter: Callable[..., Visit], site: LiveSite, size: str) -> None:
    """A unit that is out of money: one click raises its budget by a dollar, and it runs again."""
    name = f"broke-{size}"
    until(lambda: problem_of(site, name), "its problem")
    page = enter().page
    expect(in_row(page, name).locator(".state")).to_have_text("over budget")
    press(page, name, "Raise by")
    expect(in_row(page, name).locator(".state")).to_contain_text("running")
    [budget] = [one for one in site.status()[name]["budgets"] if one["by"] == "unit"]
    assert budget["limit"] == 1_300_000


def test_answer(enter: Callable[..., Visit], site: LiveSite, size: str) -> None:
    """What a rule asks is answered by the button of that answer."""
    name = f"pay-{size}"
    fire(site, name)
    page = enter().page
    press(page, name, "yes")
    until(lambda: lines(site, f"paid-{size}") == ["paid"], "its action")
    expect(page.locator(f'[data-problem^="{name}:"]')).to_have_count(0)


def test_death_is_seen(enter: Callable[..., Visit], site: LiveSite, size: str) -> None:
    """What happens to a process is on the page without a reload: its row, and the timeline (S3-36)."""
    name = f"steady-{size}"
    [pid] = until(lambda: site.running().get(name, []), "its process")
    page = enter().page
    row = in_row(page, name)
    expect(row.locator(".state")).to_contain_text("running")
    os.kill(pid, signal.SIGKILL)
    expect(row.locator(".col-restarts")).to_contain_text("1")
    expect(page.locator(".timeline")).to_contain_text(name)


def test_look_only(enter: Callable[..., Visit], site: LiveSite, size: str) -> None:
    """Who may only look gets no button, whatever needs somebody."""
    name = f"stays-{size}"
    site.wait(name, state="quarantined")
    site.flyball("token", "add", f"eyes-{size}", "--role", "look")
    page = enter(f"eyes-{size}").page
    expect(page.locator(f'[data-problem^="{name}:"]')).to_be_visible()
    expect(page.locator("[data-verb]")).to_have_count(0)


def test_log_out(enter: Callable[..., Visit], site: LiveSite, size: str) -> None:
    """Whoever logs out sees the login form, and nothing of the fleet."""
    seen = enter()
    seen.expected = ("401",)
    seen.page.get_by_role("button", name="Log out").click()
    expect(seen.page.locator("form")).to_be_visible()
    expect(seen.page.locator(".unit-row")).to_have_count(0)


def test_log_in(visit: Visitor, site: LiveSite, size: str) -> None:
    """Who types a wrong token is told, and asked again; with a right one the page is there."""
    seen = visit(site.login()[0], None, SIZES[size])
    seen.expected = ("401",)
    page = seen.page
    page.goto(seen.address)
    for token in ("flyball_wrong", site.flyball("token", "show", "admin").stdout.strip()):
        expect(page.get_by_role("alert")).to_have_count(int(token != "flyball_wrong"))  # noqa: S105 - where the test finds it
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Log in").click()
    expect(page.locator(".unit-row").first).to_be_visible()


def test_end(visit: Visitor, site: LiveSite) -> None:
    """Pause all ends what runs, after asking with the count; Resume the fleet lets it go on. When the daemon is killed,
    the page says so and offers nothing; when there is one again, the page is live again."""
    address, login = site.login()
    seen = visit(address, login)
    page = seen.page
    page.get_by_role("button", name="Pause all").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("14 units:")
    dialog.get_by_role("button", name="Pause all").click()
    expect(page.locator(".pill")).to_have_text("paused")
    until(lambda: not site.running().get("steady-desktop"), "its end")
    page.get_by_role("button", name="Resume the fleet").first.click()
    until(lambda: site.running().get("steady-desktop"), "its start")
    expect(page.locator(".pill")).not_to_have_text("paused")
    expect(page.get_by_role("button", name="Pause all")).to_be_enabled()
    seen.expected = ("ERR_",)
    pids = site.ping()
    os.kill(pids["guardian"], signal.SIGKILL)
    os.kill(pids["pid"], signal.SIGKILL)
    expect(page.get_by_role("alert")).to_contain_text("The daemon does not answer.")
    assert page.locator("[data-verb]").evaluate_all("all => all.length > 0 && all.every(one => one.disabled)")
    site.env["FLYBALL_HTTP__LISTEN"] = address.removeprefix("http://")
    site.flyball("up", "-d")
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.get_by_role("button", name="Pause all")).to_be_enabled()
